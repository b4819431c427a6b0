"""The measurement itself: jobs go in, workers take them out, and what was made is removed again."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.cli.bench.app import NAME, TEXT, app, nothing
from holdfast.cli.bench.crew import crew
from holdfast.cli.bench.figures import JOBS_PER_SECOND, MILLISECONDS, Figure, Report, percentile
from holdfast.cli.bench.tidy import clear_waiting, remove_finished
from holdfast.cli.jobs.tally import progress_bar
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, StoreError
from holdfast.ids import uuid7_floor
from holdfast.store import q
from holdfast.store.ceiling import Ceiling

CALLERS = 20
STAGE_SECONDS = 10.0  # enough to know a rate: what takes longer ends there
LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 60.0  # for a job to be finished, and then another
PAUSE_SECONDS = 0.03  # between two samples: the worker shall be idle again


@dataclass(frozen=True)
class Plan:
    jobs: int
    processes: int
    worker_arguments: list[str]

    @property
    def singles(self) -> int:
        return max(CALLERS, self.jobs // 20)

    @property
    def shared(self) -> int:
        return max(CALLERS, self.jobs // 10)

    @property
    def samples(self) -> int:
        return max(1, min(200, self.jobs // 10))


async def measure(engine: Engine, plan: Plan) -> Report:
    """All figures. Whatever happens, what was made is removed, as far as the database allows."""
    await clear_waiting(engine)
    first = uuid7_floor(engine.rules.clock.now())
    try:
        figures = [figure async for figure in Measurement(engine, plan, first).figures()]
    finally:
        await engine.resume(NAME)
        await clear_waiting(engine)
        removed = await remove_finished(engine, first)
    left = await engine.store.read(lambda tx: tx.one(q.bench_left, type=NAME))
    return Report(figures=figures, removed=removed, stays=left["running"] if left else 0)
