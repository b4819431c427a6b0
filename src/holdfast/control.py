"""Control jobs: `app.include(control())` lets a client that can create jobs cancel another job.

`system.cancel` is such a job, and the durable record of the request. It ends waiting jobs of every lifecycle, even
of one without a cancel transition, and asks the worker of a running job to stop it.
"""

from __future__ import annotations

from typing import Any

from holdfast.engine.cancel import CONTROL
from holdfast.errors import NotFound
from holdfast.extend import Extension
from holdfast.lifecycle import STATUS
from holdfast.worker.context import Context
from holdfast.worker.outcomes import Permanent


def control(*, queue: str = "control") -> Extension:
    """An extension for one app. A worker that is limited to some queues must include this one."""
    extension = Extension("control")

    @extension.job(CONTROL, queue=queue, reserved_slot=True)
    async def cancel(ctx: Context, job: str, reason: str = "canceled") -> dict[str, Any]:
        """`job` is the id of another job of the same tenant."""
        try:
            found = await ctx.withdraw(job, reason, message=f"withdrawn by {CONTROL} {ctx.job_id}")
        except NotFound as error:
            raise Permanent(error.code, error.message) from None
        return {"job": found.id, "status": STATUS[found.state]}

    return extension
