"""The measurement itself: jobs go in, workers take them out, and what was made is removed again."""

from __future__ import annotations

from asyncio.subprocess import Process
from dataclasses import dataclass
from statistics import median

from holdfast.cli.bench.app import NAME, TEXT, nothing
from holdfast.cli.bench.baseline import by_hand
from holdfast.cli.bench.cleanup import clear_waiting, remove_finished
from holdfast.cli.bench.figures import Figure, percentile
from holdfast.cli.bench.rate import Rate
from holdfast.cli.bench.workers import crew
from holdfast.cli.jobs.summary import progress_bar
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.ids import uuid7_floor
from holdfast.store import q
from holdfast.store.bench_baseline import Ceiling

CALLERS = 20
TURNS = 5
SAMPLES = 200
LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 60.0  # for one more job to be finished
PAUSE_SECONDS = 0.03  # between two samples: the worker shall be idle again


@dataclass(frozen=True)
class BenchPlan:
    jobs: int
    processes: int
    worker_arguments: list[str]

    @property
    def singles(self) -> int:
        return max(CALLERS, self.jobs // 20 // TURNS)

    @property
    def shared(self) -> int:
        return max(CALLERS, self.jobs // 10)

    @property
    def samples(self) -> int:
        return min(SAMPLES, max(1, self.jobs // 10))


@dataclass(frozen=True)
class Measured:
    """`stays`: jobs that could not be removed, because a worker that is gone still holds them."""

    figures: list[Figure]
    removed: int
    stays: int


async def measure(engine: Engine, plan: BenchPlan) -> Measured:
    """Whatever happens, what was made is removed, as far as the database allows."""
    await clear_waiting(engine)
    bench = _Bench(engine, plan)
    try:
        figures = await bench.run()
    finally:
        await engine.queues.resume(NAME)
        await clear_waiting(engine)
        removed = await remove_finished(engine, bench.first)
    return Measured(figures, removed, stays=await bench.left())


class _Bench:
    def __init__(self, engine: Engine, plan: BenchPlan) -> None:
        self._engine, self._plan, self._clock = engine, plan, engine.clock
        self._pace = Rate(self._clock)
        self.first = uuid7_floor(self._clock.now())  # no job of this run has a lower id

    async def run(self) -> list[Figure]:
        await self._engine.queues.pause(NAME)  # workers shall be ready before there is anything for them
        async with by_hand(self._engine) as hand:
            figures = [await self._one_by_one(hand), await self._callers(), await self._bulk(hand)]
            async with crew(self._plan.worker_arguments, self._plan.processes) as processes:
                figures.append(await self._drain(hand, processes))
                starts = await self._idle_starts()
        return [*figures, *(Figure.start(part, percentile(starts, part)) for part in (50, 99))]

    async def _one_by_one(self, hand: Ceiling | None) -> Figure:
        """In turns, so that a disk that is slower for a while is slower for both."""
        ours, raw = [], []
        for turn in range(1, TURNS + 1):
            if hand is not None:
                raw.append(await self._pace.rate(f"by hand, one by one {turn}", self._plan.singles, hand.put))
            ours.append(await self._pace.rate(f"enqueue, one by one {turn}", self._plan.singles, self._put))
        return Figure.rate("enqueue_one_by_one", median(ours), median(raw) if raw else None)

    async def _callers(self) -> Figure:
        rate = await self._pace.rate("enqueue, 20 callers", self._plan.shared, self._put, callers=CALLERS)
        return Figure.rate("enqueue_20_callers", rate)

    async def _bulk(self, hand: Ceiling | None) -> Figure:
        jobs = self._plan.jobs
        raw = await self._pace.rate("by hand, in bulk", jobs, lambda: hand.put_many(jobs)) if hand else None
        return Figure.rate("enqueue_bulk", await self._pace.rate("enqueue in bulk", jobs, self._put_all), raw)

    async def _put(self) -> int:
        await nothing.enqueue(TEXT)
        return 1

    async def _put_all(self) -> int:
        return len(await nothing.enqueue_many([{"text": TEXT}] * self._plan.jobs))

    async def _drain(self, hand: Ceiling | None, processes: list[Process]) -> Figure:
        raw = await self._pace.rate("by hand, drain", self._plan.jobs, hand.take_and_finish) if hand else None
        await self._engine.queues.resume(NAME)
        await self._until_drained(processes)
        done = await self._engine.store.read(lambda tx: tx.one(q.bench_done, first=self.first, type=NAME))
        if done is None or not done["jobs"]:
            raise HoldfastError("the finished jobs were pruned before they could be counted; measure without retention")
        return Figure.rate("drain", done["jobs"] / (done["ended_at"] - done["begun_at"]).total_seconds(), raw)

    async def _until_drained(self, processes: list[Process]) -> None:
        least = total = await self.left()
        patient_until = self._clock.monotonic() + PATIENCE_SECONDS
        with progress_bar("drain", total, shown=True) as advance:
            while left := await self.left():
                if left < least:
                    least, patient_until = left, self._clock.monotonic() + PATIENCE_SECONDS
                if self._clock.monotonic() > patient_until or any(one.returncode is not None for one in processes):
                    raise HoldfastError(f"the workers do not go on: {left:,} jobs are left")
                advance(total - left)
                await self._clock.sleep(LOOK_SECONDS)
            advance(total)

    async def left(self) -> int:
        row = await self._engine.store.read(lambda tx: tx.one(q.bench_left, type=NAME))
        return row["waiting"] + row["running"] if row else 0

    async def _idle_starts(self) -> list[float]:
        """Milliseconds from the call to the start of the handler."""
        found: list[float] = []
        with progress_bar("idle worker", self._plan.samples, shown=True) as advance:
            while len(found) < self._plan.samples:
                await self._clock.sleep(PAUSE_SECONDS * (0.5 + self._engine.ids.jitter()))
                called = self._clock.monotonic()
                started = await (await nothing.enqueue(TEXT, timed=True)).result(PATIENCE_SECONDS)
                found.append(1000 * ((started or called) - called))
                advance(len(found))
        return found
