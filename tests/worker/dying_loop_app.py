"""An app whose worker processes have a maintenance loop that crashes until the file MENDED_FILE exists."""

import asyncio
import os
from pathlib import Path

from holdfast import App, background
from holdfast.maintenance.maintainer import Maintainer

app = App()


@app.job("passes")
async def passes() -> None: ...


def mended() -> bool:
    return Path(os.environ["MENDED_FILE"]).exists()


async def die(self: Maintainer) -> None:
    if not mended():
        raise RuntimeError("the password is hunter2")
    await asyncio.Event().wait()


Maintainer.run = die  # type: ignore[method-assign]
background.FIRST_PAUSE_SECONDS = background.PAUSE_MAX_SECONDS = 0.05
background.PATIENCE_SECONDS, background.STEADY_SECONDS = 0.0, 0.5
