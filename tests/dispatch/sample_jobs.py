"""Jobs with known outcomes for two kinds of worker: the outcomes do not depend on the broker.

The module is also an app: `holdfast worker --app tests.dispatch.sample_jobs:app --queues mail`.
"""

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from holdfast.engine import Engine
from holdfast.model import Job, NewJob
from holdfast.sdk.app import App
from holdfast.worker.context import Context
from holdfast.worker.outcomes import Permanent, Retry
from tests.worker.real_processes.handler_log import VARIABLE, note

QUEUES = ("mail", "video")  # each has its own workers
UNSERVED_QUEUE = "attic"  # no worker serves it
PRIORITIES = (5, 0, -5)
SOON_SECONDS = 0.05

app = App()


@app.middleware
async def record_return(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    result = await call_next()
    if VARIABLE in os.environ:
        note("returned", ctx)
    return result


@app.job("succeeds")
async def succeeds() -> str:
    return "done"


@app.job("succeeds_on_retry")
async def succeeds_on_retry(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise Retry("E_ONCE", after=SOON_SECONDS)
    return "done"


@app.job("always_fails")
async def always_fails() -> None:
    raise Retry("E_ALWAYS", after=SOON_SECONDS)


@app.job("fails_permanently")
async def fails_permanently() -> None:
    raise Permanent("E_PERMANENT")


class SampleJob(NamedTuple):
    name: str
    type: str
    outcome: str  # the final state and the number of attempts
    delay_seconds: float | None = None
    max_attempts: int | None = None


CANCELED = "canceled after 0"
SAMPLES = (
    SampleJob("plain", "succeeds", "succeeded after 1"),
    SampleJob("delayed", "succeeds", "succeeded after 1", delay_seconds=0.4),
    SampleJob("retried", "succeeds_on_retry", "succeeded after 2"),
    SampleJob("out of attempts", "always_fails", "dead after 2", max_attempts=2),
    SampleJob("permanent failure", "fails_permanently", "dead after 1"),
    SampleJob("canceled", "succeeds", CANCELED),
)


class SampleJobs:
    """Creates the jobs and compares their outcomes with the expected ones."""

    def __init__(self) -> None:
        self.created: dict[str, tuple[SampleJob, str, int]] = {}  # by job

    async def create(self, engine: Engine, queue: str, priority: int) -> None:
        """Create one job of each kind. Jobs to cancel go to a queue without workers, and are canceled there."""
        new = [_new(sample, queue, priority) for sample in SAMPLES]
        made = [created.id for created in await engine.create_many(new)]
        self.created |= {job: (sample, queue, priority) for job, sample in zip(made, SAMPLES, strict=True)}
        for job in made:
            if self.created[job][0].outcome == CANCELED:
                await engine.cancel(job)

    @property
    def expected(self) -> Counter[str]:
        return Counter(_line(*created, created[0].outcome) for created in self.created.values())

    def found(self, jobs: Collection[Job]) -> Counter[str]:
        return Counter(_line(*self.created[job.id], f"{job.state} after {job.attempt}") for job in jobs)


def _new(sample: SampleJob, queue: str, priority: int) -> NewJob:
    return NewJob(
        type=sample.type,
        queue=UNSERVED_QUEUE if sample.outcome == CANCELED else queue,
        priority=priority,
        delay_seconds=sample.delay_seconds,
        max_attempts=sample.max_attempts,
    )


def _line(sample: SampleJob, queue: str, priority: int, end: str) -> str:
    return f"{sample.name}, {queue}, {priority:+}: {end}"
