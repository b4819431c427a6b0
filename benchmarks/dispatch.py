"""How soon an idle worker starts a job, and how fast jobs are enqueued and drained, by each way to send hints.

    python -m benchmarks.dispatch [--quick]

Everything takes turns on one PostgreSQL that syncs every commit. Beside it are a Redis, a NATS server and a server that
speaks SQS, all on this machine; how long a real SQS takes, this does not tell. Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from statistics import quantiles
from typing import Any, NamedTuple

from benchmarks.brokers import DATABASE, MODES, BrokerModes, environment, ways
from benchmarks.databases import Host, host
from benchmarks.hints import figures
from benchmarks.implementations import EngineCalls
from benchmarks.measurement import Candidate, Score, measure_in_turns, one_by_one, say, turned
from benchmarks.observability import Seen, drain
from benchmarks.operations import empty, filled
from benchmarks.remote import app as small_jobs
from benchmarks.report import ROOT, arguments, print_table, rounds_of, write_results
from holdfast.assembly.engine import OpenEngine
from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.sdk.app import App
from holdfast.settings import Settings
from holdfast.worker.sources.database import DatabaseSource
from tests.dispatch.harness import listening_worker, producer

TARGET = 0.8  # of the rates without a broker
SOONER = ("redis", "nats")  # a job starts no later than by LISTEN and NOTIFY

app = App()


@app.job("mark")
async def mark() -> int:
    return time.monotonic_ns()


class Sizes(NamedTuple):
    processes: tuple[str, ...] = MODES  # that have workers of their own
    samples: int = 200
    calm: float = 0.35  # between two samples: each worker has been idle for longer than a second
    rounds: int = 20
    jobs: int = 5000
    calls: int = 100


QUICK = Sizes(processes=(DATABASE, "redis"), samples=2, calm=0.1, rounds=1, jobs=200, calls=10)


# -- how soon ----------------------------------------------------------------------------------------------------------


@contextmanager
def worker_process(settings: Settings) -> Iterator[None]:
    command = [sys.executable, "-m", "holdfast.cli", "worker", "--app", "benchmarks.dispatch:app", "--concurrency", "4"]
    quiet = {**environment(settings), "HOLDFAST_LOG_LEVEL": "warning"}
    process = subprocess.Popen(command, cwd=ROOT, env=quiet, start_new_session=True)
    try:
        yield
        assert process.poll() is None, "the worker has ended"
    finally:
        process.terminate()
        process.wait()


async def starting(machine: Host, known: BrokerModes, sizes: Sizes) -> list[dict[str, Any]]:
    """From just before the call that enqueues to the first line of the handler, in another process."""
    async with AsyncExitStack() as stack:
        engines: dict[str, Engine] = {}
        for mode in sizes.processes:
            settings = known.settings(mode, (await stack.enter_async_context(machine.fresh())).url)
            opened = await stack.enter_async_context(producer(settings))
            stack.enter_context(worker_process(settings))
            engines[mode] = opened.engine
        for engine in engines.values():
            await started(engine, await sample(engine))
        sent: dict[str, list[tuple[str, int]]] = {mode: [] for mode in engines}
        for number in range(sizes.samples):
            say(f"  enqueue to start: {number + 1} of {sizes.samples}")
            for mode in turned(list(engines), number):
                await asyncio.sleep(sizes.calm)
                sent[mode].append(await sample(engines[mode]))
        taken = {mode: [await started(engines[mode], each) for each in sent[mode]] for mode in engines}
    return _soon(taken)


async def sample(engine: Engine) -> tuple[str, int]:
    sent = time.monotonic_ns()
    return (await engine.create(NewJob(type="mark"))).id, sent


async def started(engine: Engine, sample: tuple[str, int]) -> float:
    """So many milliseconds after it was sent."""
    job, sent = sample
    for _ in range(1200):
        if (found := await engine.reads.get(job)).result is not None:
            return (int(found.result) - sent) / 1e6
        await asyncio.sleep(0.05)
    raise RuntimeError(f"job {job} did not start")


def _soon(taken: dict[str, list[float]]) -> list[dict[str, Any]]:
    found, rows = [], []
    p50s = {mode: quantiles(times, n=100, method="inclusive")[49] for mode, times in taken.items()}
    for mode, times in taken.items():
        p99 = quantiles(times, n=100, method="inclusive")[98]
        ratio = p50s[mode] / p50s[DATABASE]
        met = mode not in SOONER or ratio <= 1
        rows.append([mode, f"{p50s[mode]:.2f} ms", f"{p99:.2f} ms", f"{ratio:.2f}", "<= 1" if mode in SOONER else ""])
        found.append({"figure": f"start, {mode}", "p50": p50s[mode], "p99": p99, "ratio": round(ratio, 3), "met": met})
        found[-1]["milliseconds"] = [round(each, 3) for each in times]
    print_table("Enqueue to start, idle worker", ["hints by", "p50", "p99", "to database", "target"], rows)
    return found


# -- how fast ----------------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """One that enqueues, and one worker, with connections of their own."""

    ours: EngineCalls
    source: DatabaseSource


@asynccontextmanager
async def way(machine: Host, known: BrokerModes, mode: str) -> AsyncIterator[Way]:
    async with machine.fresh() as database:
        settings = known.settings(mode, database.url)
        async with producer(settings) as creator, _listening(settings) as (opened, source):
            worker = await opened.engine.workers.register()
            yield Way(await EngineCalls.over(database, creator.engine, worker=worker.id), source)


@asynccontextmanager
async def _listening(settings: Settings) -> AsyncIterator[tuple[OpenEngine, DatabaseSource]]:
    async with listening_worker(settings, types=sorted(small_jobs.handlers)) as (opened, source, _):
        yield opened, source


async def draining(known_ways: dict[str, Way], sizes: Sizes) -> list[dict[str, Any]]:
    candidates = [
        Candidate(
            mode,
            way.ours.database,
            partial(filled, way.ours, jobs=sizes.jobs),
            partial(drain, way.source, Seen({}), jobs=sizes.jobs),
        )
        for mode, way in known_ways.items()
    ]
    return _fast("drain", await one_by_one("drain", candidates, sizes.rounds))


async def enqueueing(known_ways: dict[str, Way], sizes: Sizes) -> list[dict[str, Any]]:
    found = []
    for figure, run in figures(sizes.calls).items():
        candidates = [
            Candidate(mode, way.ours.database, partial(empty, way.ours), partial(run, way.ours))
            for mode, way in known_ways.items()
        ]
        found += _fast(
            figure, await measure_in_turns(figure, candidates, rounds=sizes.rounds, slices=min(4, sizes.rounds))
        )
    return found


def _fast(figure: str, scores: dict[str, Score]) -> list[dict[str, Any]]:
    ratios = {mode: score.ratio_to(scores[DATABASE]) for mode, score in scores.items()}
    rows = [[mode, f"{score.rate:,.0f}", f"{ratios[mode]:.3f}", f">= {TARGET}"] for mode, score in scores.items()]
    print_table(figure, ["hints by", "per second", "to database", "target"], rows)
    met = all(ratio >= TARGET for ratio in ratios.values())
    return [{"figure": figure, "ratios": ratios, "met": met, **rounds_of(scores)}]


async def measure(sizes: Sizes) -> list[dict[str, Any]]:
    with ways() as known, host("postgres") as machine:
        found = await starting(machine, known, sizes)
        async with AsyncExitStack() as stack:
            opened = {mode: await stack.enter_async_context(way(machine, known, mode)) for mode in MODES}
            gc.freeze()  # or one of them, always the same, is held up by a walk through all that the four hold
            found += await draining(opened, sizes) + await enqueueing(opened, sizes)
        print(f"\n{await machine.version()}")
    return found


def main(words: list[str] | None = None) -> int:
    options: argparse.Namespace = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    found = asyncio.run(measure(QUICK if options.quick else Sizes()))
    write_results(options.results, "dispatch", quick=options.quick, stores={"postgres": found})
    return int(not options.quick and not all(figure["met"] for figure in found))


if __name__ == "__main__":
    sys.exit(main())
