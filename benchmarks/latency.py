"""How soon another process starts a job, and how soon its result arrives: enqueue to start, enqueue to result.

    python -m benchmarks.latency [--store sqlite] [--quick]

One job at a time, in a worker process of its own that is idle in between. Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

from benchmarks.databases import Database, Host, host
from benchmarks.measurement import say
from benchmarks.report import ROOT, arguments, chosen_stores, print_table, write_results
from holdfast.sdk.app import App

JOB_SECONDS = 0.005
CALM_SECONDS = 0.1  # between two samples
STARTED_P50 = {"postgres": 2.5, "sqlite": 3.0}  # milliseconds
STARTED_P99 = {"postgres": None, "sqlite": 10.0}
RESULT_P50 = 3.0  # after the end of the job

app = App()


@app.job("brief")
async def brief() -> list[int]:
    """When it began and when it ended."""
    began = time.monotonic_ns()
    await asyncio.sleep(JOB_SECONDS)
    return [began, time.monotonic_ns()]


@contextmanager
def worker_process(database: Database) -> Iterator[None]:
    command = [sys.executable, "-m", "holdfast.cli", "worker", "--app", "benchmarks.latency:app", "--concurrency", "4"]
    quiet = {**os.environ, "HOLDFAST_DATABASE_URL": database.url, "HOLDFAST_LOG_LEVEL": "warning"}
    process = subprocess.Popen(command, cwd=ROOT, env=quiet, start_new_session=True)
    try:
        yield
        assert process.poll() is None, "the worker has ended"
    finally:
        process.terminate()
        process.wait()


async def sample(job_type: Any) -> tuple[float, float, float]:
    """Milliseconds from the enqueue to the start, from the end to the result, and from the enqueue to the result."""
    called = time.monotonic_ns()
    began, ended = await (await job_type.enqueue()).result(60)
    got = time.monotonic_ns()
    return (began - called) / 1e6, (got - ended) / 1e6, (got - called) / 1e6


async def samples_of(machine: Host, store: str, number: int) -> list[tuple[float, float, float]]:
    async with machine.fresh() as database, App(database_url=database.url) as ours:

        @ours.job("brief")
        async def brief() -> list[int]: ...  # type: ignore[empty-body]

        with worker_process(database):
            await (await brief.enqueue()).result(60)
            found = []
            for at in range(number):
                say(f"  {store}: {at + 1} of {number}")
                await asyncio.sleep(CALM_SECONDS)
                found.append(await sample(brief))
            return found


def figures(store: str, samples: list[tuple[float, float, float]]) -> list[dict[str, Any]]:
    started, result, whole = (
        [quantiles(each, n=100, method="inclusive")[at] for at in (49, 98)] for each in zip(*samples, strict=True)
    )
    late = STARTED_P99[store]
    met = started[0] <= STARTED_P50[store] and (late is None or started[1] <= late)
    return [
        {"figure": "enqueue to start", "ms": started, "met": met},
        {"figure": "end to result", "ms": result, "met": result[0] <= RESULT_P50},
        {"figure": "enqueue to result", "ms": whole, "met": True},
    ]


async def measure(options: argparse.Namespace) -> bool:
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            stores[store] = figures(store, await samples_of(machine, store, 3 if options.quick else 200))
            rows = [[each["figure"], *(f"{ms:.2f} ms" for ms in each["ms"])] for each in stores[store]]
            print_table(await machine.version(), ["", "p50", "p99"], rows)
    write_results(options.results, "latency", quick=options.quick, stores=stores)
    return options.quick or all(figure["met"] for found in stores.values() for figure in found)


def main(words: list[str] | None = None) -> int:
    options = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    return 0 if asyncio.run(measure(options)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
