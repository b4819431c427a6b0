"""How fast a remote worker drains a queue over HTTP, beside the same worker on the database.

    python -m benchmarks.remote [--store postgres] [--quick]

The server is a process of its own, as it is in life; on a small machine it takes its share of the cores from the
others. Exit status 1: the target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from benchmarks.databases import Database, Host, host
from benchmarks.implementations import TYPE, EngineCalls
from benchmarks.measurement import Candidate, measure_in_turns
from benchmarks.operations import filled
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, write_results
from holdfast.client.client import Client
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.sdk.app import App
from holdfast.store.presence import open_presence
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker
from holdfast.worker.source import Source
from holdfast.worker.sources.database import DatabaseSource
from holdfast.worker.sources.http import HttpSource

TARGET = 0.3  # of the rate on the database
SLOTS = (10, 100)
SECRET = secrets.token_urlsafe(32)

app = App()


class Left:
    """How many jobs a round has not done yet."""

    def begin(self, jobs: int) -> None:
        self.jobs, self.none = jobs, asyncio.Event()

    def one_less(self) -> None:
        self.jobs -= 1
        if not self.jobs:
            self.none.set()


left = Left()


@app.job(TYPE)
async def nothing(to: str, subject: str, template: int) -> None:
    left.one_less()


@contextmanager
def served(url: str) -> Iterator[str]:
    """The address of a server on this database, which is another process."""
    command = [sys.executable, "-m", "holdfast.cli", "serve", "--port", "0", "--database", url]
    environment = {**os.environ, "HOLDFAST_ADMIN_SECRET": SECRET}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            address, reading = _address(process.stderr)
            yield address
        finally:
            process.terminate()
        reading.join()


def _address(log: Any) -> tuple[str, threading.Thread]:
    for line in log:
        if found := re.search(r"ready: (http://\S+[0-9])", line):
            reading = threading.Thread(target=log.read, daemon=True)  # a full pipe would block the server
            reading.start()
            return found[1], reading
    raise RuntimeError("the server did not start")


@asynccontextmanager
async def on_the_database(ours: EngineCalls) -> AsyncIterator[Source]:
    presence = await open_presence(ours.database.url)
    yield DatabaseSource(ours.engine, presence, Clock(), worker=ours.worker)
    await presence.close()


@asynccontextmanager
async def over_http(ours: EngineCalls) -> AsyncIterator[Source]:
    with served(ours.database.url) as url:
        async with Client(url) as unregistered:
            key = (await unregistered.register(SECRET, name="bench")).api_key
        source = HttpSource(Client(url, key), Clock(), Ids())
        yield source
        await source.close()


async def drain(source: Source, *, jobs: int, slots: int) -> int:
    """From the start of the worker to the report of its last job."""
    left.begin(jobs)
    worker = Worker(source, app.handlers, config=WorkerConfig(concurrency=slots, heartbeats=False))
    running = asyncio.create_task(worker.run())
    await left.none.wait()
    worker.stop()
    await running
    return jobs


async def draining(store: str, machine: Host, *, rounds: int, jobs: int) -> list[dict[str, Any]]:
    found, rows = [], []
    async with AsyncExitStack() as stack:
        sides: dict[str, tuple[EngineCalls, Source]] = {}
        for name, opened in (("http", over_http), ("database", on_the_database)):
            database: Database = await stack.enter_async_context(machine.fresh())
            ours = await EngineCalls.open(database)
            stack.push_async_callback(ours.close)
            sides[name] = (ours, await stack.enter_async_context(opened(ours)))
        for slots in SLOTS:
            candidates = [
                Candidate(
                    name,
                    ours.database,
                    partial(filled, ours, jobs=jobs),
                    partial(drain, source, jobs=jobs, slots=slots),
                )
                for name, (ours, source) in sides.items()
            ]
            scores = await measure_in_turns(f"{store}, {slots} slots", candidates, rounds=rounds, slices=1)
            ratio = scores["http"].ratio_to(scores["database"])
            rates = [f"{scores[name].rate:,.0f}" for name in sides]
            rows.append([f"{slots} slots", *rates, f"{ratio:.2f}", f">= {TARGET}"])
            figure = f"drain, {slots} slots"
            found.append({"figure": figure, "ratio": round(ratio, 3), "met": ratio >= TARGET, **rounds_of(scores)})
    print_table(await machine.version(), ["drained", "over HTTP/s", "database/s", "ratio", "target"], rows)
    return found


async def measure(options: argparse.Namespace) -> bool:
    sizes = {"rounds": 1, "jobs": 200} if options.quick else {"rounds": 9, "jobs": 5000}
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            stores[store] = await draining(store, machine, **sizes)
    write_results(options.results, "remote", quick=options.quick, stores=stores)
    return options.quick or all(figure["met"] for results in stores.values() for figure in results)


def main(words: list[str] | None = None) -> int:
    options = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    return 0 if asyncio.run(measure(options)) else 1


if __name__ == "__main__":
    sys.exit(main())
