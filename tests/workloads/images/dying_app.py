"""The image service in a process that kills itself, or waits, at a step of processing.

`IMAGES_STEP` names the step. It happens once: the first process that reaches it leaves the file `IMAGES_MARK`.
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import Context
from holdfast.sdk.handler_transactions import HandlerDatabase, HandlerTransaction
from holdfast.storage import Storage
from holdfast.workloads.images.service import app

__all__ = ["STEPS", "app"]

# In the order of an execution that makes three variants.
STEPS = (
    "planned",
    "before put 1",
    "after put 1",
    "after put 3",
    "before parts",
    "after parts",
    "before publishing",
    "inside publishing",
    "after publishing",
)
WAIT_SECONDS = 60.0


def reach(step: str) -> None:
    if os.environ.get("IMAGES_STEP") != step:
        return
    try:
        Path(os.environ["IMAGES_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(WAIT_SECONDS)


class _Count:
    puts = transactions = 0


def _around(function: Callable[..., Awaitable[Any]], before: Callable[[], None], after: Callable[[], None]) -> Any:
    async def called(*args: Any, **kwargs: Any) -> Any:
        before()
        answer = await function(*args, **kwargs)
        after()
        return answer

    return called


def _begin_put() -> None:
    _Count.puts += 1
    reach(f"before put {_Count.puts}")


@asynccontextmanager
async def _transaction(self: HandlerDatabase, lease: Any) -> Any:
    _Count.transactions += 1
    last = _Count.transactions == 2
    if last:
        reach("before publishing")
    async with _real_transaction(self, lease) as tx:
        yield tx
    reach("after publishing" if last else "planned")


async def _complete(self: HandlerTransaction, result: Any = None) -> None:
    await _real_complete(self, result)
    await self.flush()
    reach("inside publishing")


_real_transaction, _real_complete = HandlerDatabase.transaction, HandlerTransaction.complete
if "IMAGES_STEP" in os.environ:
    Storage.put = _around(Storage.put, _begin_put, lambda: reach(f"after put {_Count.puts}"))  # type: ignore[method-assign]
    parts = _around(Context.keep_parts, lambda: reach("before parts"), lambda: reach("after parts"))
    Context.keep_parts = parts  # type: ignore[method-assign]
    HandlerDatabase.transaction = _transaction  # type: ignore[method-assign]
    HandlerTransaction.complete = _complete  # type: ignore[method-assign]
