"""An app whose first worker process never gets a response to a claim, while its heartbeats go on."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.sdk.app import App
from holdfast.worker.sources.database import DatabaseSource
from tests.worker.real_processes.app import on_the_loop, write_down
from tests.worker.real_processes.handler_log import VARIABLE

app = App(middleware=[write_down])
app.job("on_the_loop")(on_the_loop.handler.function)


@app.lifespan
@asynccontextmanager
async def hang_in_the_first_process(_: App) -> AsyncIterator[None]:
    if is_first():
        DatabaseSource.claim = hang  # type: ignore[method-assign]
    yield


def is_first() -> bool:
    try:
        Path(f"{os.environ[VARIABLE]}.deaf").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def hang(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()
