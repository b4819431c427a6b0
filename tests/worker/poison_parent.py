"""A worker-like process with one job in a child: prints the child's pid, and stays until it is killed."""

import asyncio
import sys

from holdfast.clock import Clock
from holdfast.worker.processes.process_pool import ProcessPool
from tests.worker.child_pool import Recorder, lease_on
from tests.worker.poison_app import app


async def main(job_type: str) -> None:
    children = ProcessPool("tests.worker.poison_app:app", most=1, clock=Clock())
    await children.run(
        lease_on(job_type),
        app.handlers[job_type],
        Recorder(),
        dedicated=False,
        on_started=lambda execution: print(execution.pid, flush=True),
    )


asyncio.run(main(sys.argv[1]))
