"""The generation service: `POST /generations` beside `POST /jobs`, and the first page of long statements.

    python -m benchmarks.generation [--store postgres] [--quick]

64 clients of one server process, each with a key of its own user; every request is another prompt. `one user`: all
clients share an account, whose row each request locks. The sides take turns. Exit status 1: an aim was missed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.databases import Database, Host, host
from benchmarks.http import CLIENTS, Load, clients, rate, share
from benchmarks.measurement import say
from benchmarks.processes import HOLDFAST, listening
from benchmarks.report import arguments, chosen_stores, print_table, write_results
from benchmarks.streams import Server
from holdfast.assembly.engine import open_app_engine
from holdfast.model.key import NewKey
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.workloads.generation import ledger
from holdfast.workloads.generation.included import ext
from holdfast.workloads.generation.ledger import Entry
from holdfast.workloads.generation.service import app

APP = "holdfast.workloads.generation:app"
GENERATIONS, JOBS, ONE_USER = "POST /generations", "POST /jobs", "POST /generations, one user"
SHARE_MIN, PAGE_MAX = 0.5, 1.5
SCOPES = ("jobs:create", "generation:write", "generation:read")
WORDS = "an old lighthouse on a cliff above a stormy sea at night, oil on canvas, number"


class Sizes(NamedTuple):
    rounds: int = 7
    seconds: float = 2.0
    prompts: int = 40_000  # of a turn, most of them unused
    short: int = 1000  # entries
    long: int = 1_000_000
    pages: int = 200


QUICK = Sizes(rounds=1, seconds=0.2, prompts=2000, short=100, long=1000, pages=5)
FILLED = 1000  # entries of a transaction
_numbers = count()


def posts(path: str, keys: list[str], bodies: list[dict[str, Any]]) -> list[str]:
    return [_request("POST", path, keys[place % len(keys)], json.dumps(body)) for place, body in enumerate(bodies)]


def _request(method: str, path: str, key: str, body: str = "") -> str:
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"


def prompts(sizes: Sizes) -> list[dict[str, Any]]:
    return [{"prompt": f"{WORDS} {next(_numbers)}"} for _ in range(sizes.prompts)]


async def measure_posts(database: Database, sizes: Sizes) -> dict[str, list[dict[str, Any]]]:
    keys = await _keys(database)
    taken: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        server, load = _server(stack, database), stack.enter_context(clients())
        job = [{"jobType": "bench", "payload": prompts(QUICK)[0]}]
        turn: dict[str, Callable[[], Any]] = {
            JOBS: lambda: load.run(server, posts("/jobs", keys, job), 202, sizes.seconds),
            GENERATIONS: lambda: _generations(load, server, keys, sizes),
            ONE_USER: lambda: _generations(load, server, keys[:1], sizes),
        }
        for number in range(sizes.rounds + (sizes.rounds > 1)):
            say(f"  round {number} of {sizes.rounds}" if number else "  warming up")
            found = {name: await asyncio.to_thread(run) for name, run in turn.items()}
            await database.settle("holdfast_jobs", "holdfast_events", "holdfast_generation_request")
            if number or sizes.rounds == 1:
                for name, each in found.items():
                    taken.setdefault(name, []).append(each)
    return taken


def _generations(load: Load, server: Server, keys: list[str], sizes: Sizes) -> dict[str, Any]:
    return load.run(server, posts("/generations", keys, prompts(sizes)), 202, sizes.seconds)


async def _keys(database: Database) -> list[str]:
    await migrate(database.url, [ext])
    engine = await open_app_engine(Settings(database_url=database.url), app.parts())
    try:
        made = [await engine.keys.create(NewKey(name=f"k{n}", subject=f"u{n}", scopes=SCOPES)) for n in range(CLIENTS)]
        return [text for _, text in made]
    finally:
        await engine.close()


def _server(stack: ExitStack, database: Database) -> Server:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-generation-"))
    variables = {
        "HOLDFAST_DATABASE_URL": database.url,
        "HOLDFAST_UNKNOWN_JOB_TYPES": "accept",
        "HOLDFAST_GENERATION_STARTING_CREDITS": str(10**9),
        "HOLDFAST_GENERATION_QUOTA_PER_DAY": "0",
    }
    serve = (*HOLDFAST, "serve", "--app", APP, "--port", "{port}")
    running = stack.enter_context(listening(Path(folder), *serve, **variables))
    return Server(running.pid, running.port)


# -- statements -------------------------------------------------------------------------------------------------------


async def measure_statements(database: Database, sizes: Sizes) -> dict[str, float]:
    """Milliseconds of a first page, as the route reads it."""
    await migrate(database.url, [ext])
    engine = await open_app_engine(Settings(database_url=database.url), app.parts())
    try:
        for user, entries in (("short", sizes.short), ("long", sizes.long)):
            await _fill(engine.store, user, entries)
        await database.settle("holdfast_generation_entry")
        took: dict[str, list[float]] = {"short": [], "long": []}
        for _ in range(sizes.pages):
            for user, times in took.items():
                times.append(await _page(engine.store, user))
        return {user: median(times) for user, times in took.items()}
    finally:
        await engine.close()


async def _page(store: Any, user: str) -> float:
    asked = {"tenant": "default", "user_id": user, "before": 2**63 - 1, "limit": 51}
    began = time.perf_counter()
    rows = await store.read(lambda tx: tx.all(ext.q.statement, **asked))
    assert len(rows) == 51
    return 1000 * (time.perf_counter() - began)


async def _fill(store: Any, user: str, entries: int) -> None:
    whose = ("default", user)
    for first in range(0, entries, FILLED):
        grants = [Entry(whose, "grant", 1, reason="a benchmark")] * min(FILLED, entries - first)

        async def write(tx: Any, grants: list[Entry] = grants) -> None:
            await tx.one(ext.q.open_account, tenant=whose[0], user_id=whose[1])
            await ledger.add(tx, grants)

        await store.write(write)


# -- figures ----------------------------------------------------------------------------------------------------------


async def measure_store(machine: Host, sizes: Sizes) -> tuple[dict[str, Any], dict[str, float]]:
    async with machine.fresh() as database:
        taken = await measure_posts(database, sizes)
    async with machine.fresh() as database:
        return taken, await measure_statements(database, sizes)


def judged(taken: dict[str, Any], pages: dict[str, float]) -> list[dict[str, Any]]:
    posted, one, longer = share(taken, GENERATIONS, JOBS), share(taken, ONE_USER, JOBS), pages["long"] / pages["short"]
    return [
        {"figure": f"{GENERATIONS}, of {JOBS}", "value": posted, "target": SHARE_MIN, "met": posted >= SHARE_MIN},
        {"figure": f"{ONE_USER}, of {JOBS}", "value": one, "target": None, "met": True},
        {"figure": "first page of a long statement", "value": longer, "target": PAGE_MAX, "met": longer <= PAGE_MAX},
    ]


def main(given: list[str] | None = None) -> int:
    options = arguments(__doc__).parse_args(given)
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            taken, pages = asyncio.run(measure_store(machine, QUICK if options.quick else Sizes()))
        figures = judged(taken, pages)
        print_table(
            f"{store}: {CLIENTS} clients, one server process",
            ["", "a second", "p50 ms", "p99 ms", "server's µs"],
            [[name, f"{median(map(rate, each)):,.0f}", *_times(each)] for name, each in taken.items()],
        )
        rows = [
            [each["figure"], f"{each['value']:.2f}", _aim(each), "" if each["met"] else "missed"] for each in figures
        ]
        print_table("Against the aims", ["", "is", "aim", ""], rows)
        stores[store] = [{"rounds": taken, "page_ms": pages}, *figures]
    write_results(options.results, "generation", quick=options.quick, stores=stores)
    every = [each for found in stores.values() for each in found[1:]]
    return int(not options.quick and not all(each["met"] for each in every))


def _aim(figure: dict[str, Any]) -> str:
    return "" if figure["target"] is None else f"{figure['target']:g}"


def _times(rounds: list[dict[str, Any]]) -> list[str]:
    return [f"{median(each[name] for each in rounds):.2f}" for name in ("p50_ms", "p99_ms", "cpu_micros")]


if __name__ == "__main__":
    sys.exit(main())
