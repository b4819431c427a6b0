"""A pool of child processes for tests, on `poison_app`, with a report line that records."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import LeaseLost, NotFound
from holdfast.lifecycle import State
from holdfast.model import Lease, Part
from holdfast.model.reports import Progress, Withdrawal, Withdrawn
from holdfast.worker.handler import Handler
from holdfast.worker.outcomes import Completed, Failed, Outcome
from holdfast.worker.processes.process_pool import ChildExecution, ProcessPool
from tests.worker.poison_app import app

APP = "tests.worker.poison_app:app"
AT = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_SECONDS = 60.0


def lease_on(job_type: str, payload: dict[str, Any] | None = None, *, epoch: int = 1) -> Lease:
    return Lease(
        id="018f0000-0000-7000-8000-000000000001",
        token="018f0000-0000-4000-8000-000000000002",
        tenant="default",
        type=job_type,
        queue="default",
        lifecycle="default",
        priority=0,
        epoch=epoch,
        attempt=epoch,
        max_attempts=5,
        lost=0,
        expires_at=AT,
        claimed_at=AT,
        created_at=AT,
        run_at=AT,
        payload=payload or {},
        checkpoint=None,
        tags=[],
        trace=None,
        policy=1,
    )


class Recorder:
    """A report line that records the reports."""

    def __init__(self, parts: list[Part] | None = None, *, lost: bool = False) -> None:
        self.reports: list[Progress] = []
        self._parts, self._lost = parts or [], lost
        self.heard = asyncio.Event()

    async def progress(self, report: Progress) -> None:
        self.reports.append(report)
        self.heard.set()
        if self._lost:
            raise LeaseLost("job 1: the lease is lost", code="lease_lost")

    async def parts(self, job_id: str) -> list[Part]:
        return self._parts

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        if asked.target == "none":
            raise NotFound("there is no job none", code="job_not_found")
        return Withdrawn(asked.target, State.DEAD)


class Pool:
    def __init__(self, children: ProcessPool) -> None:
        self.children = children

    async def run(
        self,
        job_type: str,
        *,
        line: Recorder | None = None,
        alone: bool = False,
        on_started: Callable[[ChildExecution], None] = lambda _: None,
        epoch: int = 1,
        handler: Handler | None = None,
        **payload: Any,
    ) -> Outcome:
        return await self.children.run(
            lease_on(job_type, payload, epoch=epoch),
            handler or app.handlers[job_type],
            line or Recorder(),
            dedicated=alone,
            on_started=on_started,
        )

    @contextlib.asynccontextmanager
    async def running(self, job_type: str) -> AsyncIterator[tuple[ChildExecution, asyncio.Task[Outcome]]]:
        """A job in the middle of its work: it has reported progress."""
        line, started = Recorder(), asyncio.get_running_loop().create_future()
        job = asyncio.create_task(self.run(job_type, line=line, on_started=started.set_result))
        async with asyncio.timeout(PATIENCE_SECONDS):
            execution = await started
            await line.heard.wait()
            yield execution, job

    async def pid(self) -> int:
        return result_of(await self.run("add", a=1, b=1))["pid"]


@contextlib.asynccontextmanager
async def pool_of(reference: str = APP, *, most: int = 1, **limits: Any) -> AsyncIterator[Pool]:
    pool = Pool(ProcessPool(reference, most=most, clock=Clock(), **limits))
    try:
        yield pool
    finally:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await pool.children.close()


def result_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return outcome.result


def failure_of(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def until(condition: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> float:
    """How long it took."""
    since = time.monotonic()
    while not condition():
        assert time.monotonic() - since < seconds, "it did not happen"
        await asyncio.sleep(0.005)
    return time.monotonic() - since
