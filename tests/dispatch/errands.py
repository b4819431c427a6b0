"""Jobs of many kinds for two kinds of worker, and how each of them must end, whatever becomes of the broker.

It is an app, too: `holdfast worker --app tests.dispatch.errands:app --queues mail`.
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
from tests.worker.stories.diary import VARIABLE, note

QUEUES = ("mail", "video")  # each has workers that know no other
ATTIC = "attic"  # has none
PRIORITIES = (5, 0, -5)
SOON_SECONDS = 0.05

app = App()


@app.middleware
async def write_down(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    result = await call_next()
    if VARIABLE in os.environ:
        note("returned", ctx)
    return result


@app.job("works")
async def works() -> str:
    return "done"


@app.job("works_the_second_time")
async def works_the_second_time(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise Retry("E_ONCE", after=SOON_SECONDS)
    return "done"


@app.job("never_works")
async def never_works() -> None:
    raise Retry("E_ALWAYS", after=SOON_SECONDS)


@app.job("cannot_work")
async def cannot_work() -> None:
    raise Permanent("E_HOPELESS")


class Errand(NamedTuple):
    name: str
    type: str
    ends: str  # in which state, after how many attempts
    delay_seconds: float | None = None
    max_attempts: int | None = None


CANCELED = "canceled after 0"
ERRANDS = (
    Errand("plain", "works", "succeeded after 1"),
    Errand("delayed", "works", "succeeded after 1", delay_seconds=0.4),
    Errand("retried", "works_the_second_time", "succeeded after 2"),
    Errand("given up", "never_works", "dead after 2", max_attempts=2),
    Errand("hopeless", "cannot_work", "dead after 1"),
    Errand("unwanted", "works", CANCELED),
)


class Errands:
    """Who created what, to be compared with what became of it."""

    def __init__(self) -> None:
        self.given: dict[str, tuple[Errand, str, int]] = {}  # by job

    async def give(self, engine: Engine, queue: str, priority: int) -> None:
        """One of each kind. Those that nobody wants any more wait where nobody takes them, and are cancelled there."""
        new = [_new(errand, queue, priority) for errand in ERRANDS]
        made = [created.id for created in await engine.create_many(new)]
        self.given |= {job: (errand, queue, priority) for job, errand in zip(made, ERRANDS, strict=True)}
        for job in made:
            if self.given[job][0].ends == CANCELED:
                await engine.cancel(job)

    @property
    def expected(self) -> Counter[str]:
        return Counter(_line(*given, given[0].ends) for given in self.given.values())

    def found(self, jobs: Collection[Job]) -> Counter[str]:
        return Counter(_line(*self.given[job.id], f"{job.state} after {job.attempt}") for job in jobs)


def _new(errand: Errand, queue: str, priority: int) -> NewJob:
    return NewJob(
        type=errand.type,
        queue=ATTIC if errand.ends == CANCELED else queue,
        priority=priority,
        delay_seconds=errand.delay_seconds,
        max_attempts=errand.max_attempts,
    )


def _line(errand: Errand, queue: str, priority: int, end: str) -> str:
    return f"{errand.name}, {queue}, {priority:+}: {end}"
