"""What is measured, one function for each cell of the table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from benchmarks.peers.bench import Bench, Stage
from benchmarks.peers.catalog import Peer
from benchmarks.peers.marks import Mark, all_at_work
from benchmarks.peers.stores import Counted

Result = dict[str, Any]

WARM_JOBS = 3
WARM_CALLS = 20  # before the clock starts: connections are made, pools are filled


class Cell(NamedTuple):
    name: str
    title: str
    measure: Callable[[Bench, Peer], Result]
    best: Callable[[list[Result]], Result]  # of the rounds
    repeated: bool = True  # else one round is enough
    watches: bool = False  # it is mostly waiting: several peers may do so at the same time
    applies: Callable[[Peer], bool] = lambda peer: True


def cells() -> list[Cell]:
    fastest = partial(max, key=lambda result: result["rate"])
    quickest = partial(min, key=lambda result: result["p50"])
    only = partial(min, key=lambda result: 0)
    return [
        Cell("one", "enqueue one by one", partial(enqueue, how="one"), fastest, applies=partial(enqueues, "one")),
        Cell("bulk", "enqueue in bulk", partial(enqueue, how="bulk"), fastest, applies=partial(enqueues, "bulk")),
        Cell(
            "crowd", "enqueue, 20 callers", partial(enqueue, how="crowd"), fastest, applies=partial(enqueues, "crowd")
        ),
        Cell("drain-1", "drain, 1 process", partial(drain, processes=1), fastest),
        Cell("drain-2", "drain, 2 processes", partial(drain, processes=2), fastest),
        Cell("latency", "latency when idle", latency, quickest, applies=waits),
        Cell(
            "idle",
            "cost when idle",
            idle,
            only,
            repeated=False,
            applies=lambda peer: peer.store == "postgres" and waits(peer),
        ),
        Cell("behind", "drain, 1,000,000 behind", behind, only, repeated=False, applies=lambda peer: peer.behind),
        Cell("recovery", "recovery after kill -9", recovery, only, repeated=False, watches=True, applies=waits),
    ]


def waits(peer: Peer) -> bool:
    return not peer.reference


def enqueues(how: str, peer: Peer) -> bool:
    return how in peer.enqueue and not peer.again


# -- enqueue -------------------------------------------------------------------------------------------------------


def enqueue(bench: Bench, peer: Peer, how: str) -> Result:
    sizes = bench.sizes
    with bench.stage(peer) as stage:
        before = stage.place.counted()
        count = sizes.bulk if how == "bulk" else sizes.one
        done = stage.enqueue(how, count, sizes.enqueue_seconds, "--warm", str(WARM_CALLS))
        return {**done, "rate": done["jobs"] / done["seconds"], **_counts(stage, before, done["jobs"] + WARM_CALLS)}


# -- drain ---------------------------------------------------------------------------------------------------------


def drain(bench: Bench, peer: Peer, processes: int) -> Result:
    with bench.stage(peer) as stage:
        jobs = stage.fill(min(bench.sizes.drain, peer.jobs))
        return drained(stage, jobs, processes, bench.sizes.seconds)


def behind(bench: Bench, peer: Peer) -> Result:
    """The same drain without and with a crowd of ready jobs behind, up to when the last handler begins."""
    small = drain(bench, peer, processes=1)
    jobs = min(bench.sizes.drain, peer.jobs)
    with bench.stage(peer) as stage:
        crowd = stage.crowd(bench.sizes.behind + jobs)
        large = drained(stage, jobs, 1, bench.sizes.seconds, to_the_end=False)
    return {
        "rate": large["begin_rate"],
        "small_rate": small["begin_rate"],
        "ratio": large["begin_rate"] / small["begin_rate"],
        "crowd": crowd,
        "jobs": large["jobs"],
    }


def drained(stage: Stage, jobs: int, processes: int, seconds: float, *, to_the_end: bool = True) -> Result:
    """`rate` counts from when all processes are at work to when the store knows that every job is done."""
    before = stage.place.counted()
    with stage.workers(processes) as workers:
        if not stage.marks.wait(1, seconds, workers.check):
            raise RuntimeError(f"no job began in {seconds} s; {workers.last_words()}")
        began, at_first = stage.marks.count(), (workers.cpu_seconds(), stage.store.cpu_seconds())
        if stage.marks.wait(jobs, seconds, workers.check) and to_the_end:
            _wait_until_known(stage, time.monotonic() + seconds)
        known, marks = time.monotonic_ns(), stage.marks.all()
        at_last = (workers.cpu_seconds(), stage.store.cpu_seconds())
    return {
        **_rates(marks, processes, known),
        "cpu_micros": _each(at_first[0], at_last[0], len(marks) - began),
        "store_cpu_micros": _each(at_first[1], at_last[1], len(marks) - began),
        **_counts(stage, before, stage.marks.count()),
    }


def _wait_until_known(stage: Stage, deadline: float) -> None:
    while stage.peer.pending and stage.place.pending(stage.peer.pending):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{stage.peer.name} began every job, and yet some are not done")
        time.sleep(0.01)


def _rates(marks: list[Mark], processes: int, known: int) -> Result:
    begin, last = all_at_work(marks, processes), max(mark.nanoseconds for mark in marks)
    jobs = sum(mark.nanoseconds >= begin for mark in marks)
    return {
        "jobs": jobs,
        "seconds": (known - begin) / 1e9,
        "rate": jobs / (known - begin) * 1e9,
        "begin_rate": jobs / max(last - begin, 1) * 1e9,
    }


def _each(first: float | None, last: float | None, jobs: int) -> float | None:
    return None if first is None or last is None else (last - first) / max(jobs, 1) * 1e6


def _counts(stage: Stage, before: Counted | None, jobs: int) -> Result:
    after = stage.place.counted()
    if before is None or after is None:
        return {}
    return {
        "commits": (after.commits - before.commits) / jobs,
        "wal_bytes": (after.wal_bytes - before.wal_bytes) / jobs,
    }


# -- one worker with nothing or little to do -----------------------------------------------------------------------


def latency(bench: Bench, peer: Peer) -> Result:
    """From just before the call that enqueues to the first line of the handler, in milliseconds."""
    with bench.stage(peer) as stage, stage.workers(1) as workers:
        _warm(stage, workers.check, bench.sizes.calm_seconds)
        sent = stage.enqueue("latency", bench.sizes.samples + 1, bench.sizes.seconds)["sent"][1:]  # the first connects
        marks = stage.marks.all()[WARM_JOBS + 1 :]
    taken = sorted((mark.nanoseconds - moment) / 1e6 for moment, mark in zip(sent, marks, strict=False))
    return {"samples": len(taken), "p50": statistics.median(taken), "p99": taken[int(len(taken) * 0.99) - 1]}


def idle(bench: Bench, peer: Peer) -> Result:
    """Sessions report what they counted when they end; so the same life twice, once with the idle time in it."""
    _, without = _idle_life(bench, peer, 0.0)
    cpu_seconds, with_it = _idle_life(bench, peer, bench.sizes.idle_seconds)
    return {
        "transactions_per_second": (with_it - without) / bench.sizes.idle_seconds,
        "cpu_percent": cpu_seconds / bench.sizes.idle_seconds * 100,
    }


def _idle_life(bench: Bench, peer: Peer, seconds: float) -> tuple[float, int]:
    with bench.stage(peer) as stage:
        with stage.workers(1) as workers:
            _warm(stage, workers.check, bench.sizes.calm_seconds)
            before = workers.cpu_seconds()
            time.sleep(seconds)
            spent = workers.cpu_seconds() - before
        counted = stage.place.counted()
    assert counted
    return spent, counted.commits


def _warm(stage: Stage, alive: Callable[[], None], calm_seconds: float) -> None:
    stage.enqueue("one", WARM_JOBS, 30.0)
    if not stage.marks.wait(WARM_JOBS, 30.0, alive):
        raise RuntimeError(f"{stage.peer.name} did not begin the first jobs")
    time.sleep(calm_seconds)


def recovery(bench: Bench, peer: Peer) -> Result:
    """Seconds from `kill -9` of a worker inside a job to when another, started at once, begins that job again."""
    with bench.stage(peer) as stage:
        workers = stage.start(1)
        try:
            stage.enqueue("one", 1, 30.0, "--data", "long")
            if not stage.marks.wait(1, 30.0, workers.check):
                raise RuntimeError(f"{peer.name} did not begin the job that was to be lost")
            time.sleep(bench.sizes.calm_seconds)
        finally:
            workers.kill()
        killed = time.monotonic_ns()
        again = stage.start(1)
        try:
            recovered = stage.marks.wait(2, bench.sizes.watch_seconds, again.check)
        finally:
            again.kill()
        marks = stage.marks.all()
    return {
        "seconds": (marks[1].nanoseconds - killed) / 1e9 if recovered else None,
        "watched": bench.sizes.watch_seconds,
    }
