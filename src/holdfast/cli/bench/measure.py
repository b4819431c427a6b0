"""The benchmark: enqueues jobs, runs workers that drain them, and removes the jobs."""

from __future__ import annotations

from asyncio.subprocess import Process
from dataclasses import dataclass
from functools import partial
from statistics import median

from holdfast.cli.bench.app import NAME, TEXT, nothing
from holdfast.cli.bench.baseline import by_hand
from holdfast.cli.bench.figures import Figure, percentile
from holdfast.cli.bench.rate import rate
from holdfast.cli.bench.workers import workers_running
from holdfast.cli.jobs.summary import progress_bar
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.ids import uuid7_floor
from holdfast.store.bench_baseline import BenchBaseline

CALLERS = 20
ROUNDS = 5
SAMPLES = 200
POLL_SECONDS = 0.2
STALL_SECONDS = 60.0  # without a finished job, the run is aborted
PAUSE_SECONDS = 0.03  # between two samples, so that the worker is idle again


@dataclass(frozen=True)
class BenchPlan:
    jobs: int
    processes: int
    worker_arguments: list[str]

    @property
    def singles(self) -> int:
        return max(CALLERS, self.jobs // 20 // ROUNDS)

    @property
    def shared(self) -> int:
        return max(CALLERS, self.jobs // 10)

    @property
    def samples(self) -> int:
        return min(SAMPLES, max(1, self.jobs // 10))


@dataclass(frozen=True)
class Measured:
    """`stays`: jobs that could not be removed, because the lease of a stopped worker is not over."""

    figures: list[Figure]
    removed: int
    stays: int


async def measure(engine: Engine, plan: BenchPlan) -> Measured:
    """The jobs are removed at the end, also after an error."""
    await engine.bench.cancel_waiting(NAME)
    bench = _Bench(engine, plan)
    try:
        figures = await bench.run()
    finally:
        await engine.queues.resume(NAME)
        await engine.bench.cancel_waiting(NAME)
        removed = await engine.bench.remove_finished(NAME, bench.first)
    return Measured(figures, removed, stays=await engine.bench.unfinished(NAME))


class _Bench:
    def __init__(self, engine: Engine, plan: BenchPlan) -> None:
        self._engine, self._plan, self._clock = engine, plan, engine.clock
        self._rate = partial(rate, self._clock)
        self.first = uuid7_floor(self._clock.now())  # no job of this run has a lower id

    async def run(self) -> list[Figure]:
        await self._engine.queues.pause(NAME)  # until the workers are ready
        async with by_hand(self._engine) as hand:
            figures = [await self._one_by_one(hand), await self._callers(), await self._bulk(hand)]
            async with workers_running(self._plan.worker_arguments, self._plan.processes) as processes:
                figures.append(await self._drain(hand, processes))
                starts = await self._idle_starts()
        return [*figures, *(Figure.start(part, percentile(starts, part)) for part in (50, 99))]

    async def _one_by_one(self, hand: BenchBaseline | None) -> Figure:
        """Alternating, so that a temporarily slow disk affects both."""
        ours, raw = [], []
        for turn in range(1, ROUNDS + 1):
            if hand is not None:
                raw.append(await self._rate(f"raw SQL, one by one {turn}", self._plan.singles, hand.put))
            ours.append(await self._rate(f"enqueue, one by one {turn}", self._plan.singles, self._put))
        return Figure.rate("enqueue_one_by_one", median(ours), median(raw) if raw else None)

    async def _callers(self) -> Figure:
        ours = await self._rate("enqueue, 20 callers", self._plan.shared, self._put, callers=CALLERS)
        return Figure.rate("enqueue_20_callers", ours)

    async def _bulk(self, hand: BenchBaseline | None) -> Figure:
        jobs = self._plan.jobs
        raw = await self._rate("raw SQL, bulk", jobs, lambda: hand.put_many(jobs)) if hand else None
        return Figure.rate("enqueue_bulk", await self._rate("enqueue, bulk", jobs, self._put_all), raw)

    async def _put(self) -> int:
        await nothing.enqueue(TEXT)
        return 1

    async def _put_all(self) -> int:
        return len(await nothing.enqueue_many([{"text": TEXT}] * self._plan.jobs))

    async def _drain(self, hand: BenchBaseline | None, processes: list[Process]) -> Figure:
        raw = await self._rate("raw SQL, drain", self._plan.jobs, hand.take_and_finish) if hand else None
        await self._engine.queues.resume(NAME)
        await self._until_drained(processes)
        done = await self._engine.bench.finished(NAME, self.first)
        if done is None or not done["jobs"]:
            raise HoldfastError(
                "the finished jobs were pruned before they were counted; run the benchmark with a longer retention"
            )
        return Figure.rate("drain", done["jobs"] / (done["ended_at"] - done["begun_at"]).total_seconds(), raw)

    async def _until_drained(self, processes: list[Process]) -> None:
        least = total = await self._engine.bench.unfinished(NAME)
        stalled_at = self._clock.monotonic() + STALL_SECONDS
        with progress_bar("drain", total, shown=True) as advance:
            while left := await self._engine.bench.unfinished(NAME):
                if left < least:
                    least, stalled_at = left, self._clock.monotonic() + STALL_SECONDS
                if self._clock.monotonic() > stalled_at or any(one.returncode is not None for one in processes):
                    raise HoldfastError(f"the workers have stalled: {left:,} jobs are left")
                advance(total - left)
                await self._clock.sleep(POLL_SECONDS)
            advance(total)

    async def _idle_starts(self) -> list[float]:
        """Milliseconds from the call to the start of the handler."""
        found: list[float] = []
        with progress_bar("idle worker", self._plan.samples, shown=True) as advance:
            while len(found) < self._plan.samples:
                await self._clock.sleep(PAUSE_SECONDS * (0.5 + self._engine.ids.jitter()))
                called = self._clock.monotonic()
                started = await (await nothing.enqueue(TEXT, timed=True)).result(STALL_SECONDS)
                found.append(1000 * ((started or called) - called))
                advance(len(found))
        return found
