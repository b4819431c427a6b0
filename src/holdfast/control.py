"""Control jobs: `app.include(control())` lets a client that can create jobs cancel another job.

`system.cancel` is such a job, and the durable record of the request. It ends waiting jobs of every lifecycle, even
of one without a cancel transition. It waits for a running job that cannot be told to stop.
"""

from __future__ import annotations

from typing import Any

from holdfast.engine.withdraw import CONTROL
from holdfast.errors import NotFound
from holdfast.extend import Extension
from holdfast.lifecycle import STATUS, State
from holdfast.worker.context import Context
from holdfast.worker.outcomes import Permanent, Snooze

LOOK_AGAIN_SECONDS = 10.0


def control(*, queue: str = "control") -> Extension:
    """An extension for one app. A worker that is limited to some queues must include this one."""
    extension = Extension("control")

    @extension.job(CONTROL, queue=queue)
    async def cancel(ctx: Context, job: str, reason: str = "canceled") -> dict[str, Any] | Snooze:
        """`job` is the id of another job of the same tenant."""
        try:
            found = await ctx.withdraw(job, reason, message=f"withdrawn by {CONTROL} {ctx.job_id}")
        except NotFound as error:
            raise Permanent(error.code, error.message) from None
        if found.state is State.RUNNING and not found.asked:
            return ctx.snooze(LOOK_AGAIN_SECONDS)
        return {"job": found.id, "status": STATUS[found.state]}

    return extension
