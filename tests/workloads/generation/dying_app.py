"""The generation service in a process that kills itself at a step of an execution.

`GENERATION_STEP` names the step. It happens once: the first process that reaches it leaves the file `GENERATION_MARK`.
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from holdfast import Context
from holdfast.sdk.handler_transactions import HandlerTransaction
from holdfast.storage.staging import Staged
from holdfast.workloads.generation.execution import _Execution
from holdfast.workloads.generation.service import app

__all__ = ["STEPS", "app"]

# In the order of an execution.
STEPS = (
    "before the order",
    "after the answer",
    "after the charge",
    "after the put",
    "after publishing",
    "after the part",
    "before the commit",
    "inside the commit",
    "after the commit",
)
WAIT_SECONDS = 60.0


def reach(step: str) -> None:
    if os.environ.get("GENERATION_STEP") != step:
        return
    try:
        Path(os.environ["GENERATION_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(WAIT_SECONDS)


def _around(function: Callable[..., Awaitable[Any]], before: str = "", after: str = "") -> Any:
    async def called(*args: Any, **kwargs: Any) -> Any:
        reach(before)
        answer = await function(*args, **kwargs)
        reach(after)
        return answer

    return called


async def _complete(self: HandlerTransaction, result: Any = None) -> None:
    await _real_complete(self, result)
    await self.flush()
    reach("inside the commit")


_real_complete = HandlerTransaction.complete
if "GENERATION_STEP" in os.environ:
    changed: Any = _Execution
    changed._ask = _around(_Execution._ask, "before the order", "after the answer")
    changed._note_charge = _around(_Execution._note_charge, after="after the charge")
    changed._publish = _around(_Execution._publish, "before the commit", "after the commit")
    Staged.put = _around(Staged.put, after="after the put")  # type: ignore[method-assign]
    Staged.publish = _around(Staged.publish, after="after publishing")  # type: ignore[method-assign]
    Context.keep_part = _around(Context.keep_part, after="after the part")  # type: ignore[method-assign]
    HandlerTransaction.complete = _complete  # type: ignore[method-assign]
