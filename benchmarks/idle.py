"""The database load of idle worker processes, with and without a broker.

    python -m benchmarks.idle [--workers 50] [--seconds 60] [--modes database,redis] [--quick]

The workers are what `holdfast worker --processes 50` starts: fifty processes with their fifty keepers, which takes
about 5 GB and, on two cores, a minute or two until all are up. Nothing is enqueued. What they send is counted by
PostgreSQL itself (`pg_stat_statements`): every statement that reaches it, each BEGIN and COMMIT included, from when the
workers have been left alone for a while. Exit status 1: the target was missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import asyncpg

from benchmarks.report import ROOT, arguments, print_table, write_results
from holdfast.sdk.app import App
from holdfast.store.migrate import migrate
from tests.servers.postgres import PostgresServer, running
from tests.servers.redis import RedisServer

TARGET = 0.1  # of what the same workers send without a broker
START_SECONDS = 600.0
SETTINGS = ("max_connections=1000", "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.max=1000")

app = App()


@app.job("nothing")
async def nothing() -> None: ...


class Sizes(NamedTuple):
    """`calm`: how long they are left alone first; by then each has heard how many they are, and polls no more often
    than it will."""

    workers: int = 50
    calm: float = 120.0
    seconds: float = 60.0


QUICK = Sizes(workers=2, calm=1.0, seconds=2.0)


@contextlib.contextmanager
def idle_workers(url: str, count: int, **environment: str) -> Iterator[None]:
    command = [sys.executable, "-m", "holdfast.cli", "worker", "--app", "benchmarks.idle:app", "--database", url]
    process = subprocess.Popen(
        [*command, "--processes", str(count), "--concurrency", "1"],
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_LOG_LEVEL": "error", **environment},
        start_new_session=True,
    )
    try:
        yield
        assert process.poll() is None, "the workers have ended"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def until_all_beat(connection: Any, count: int) -> None:
    give_up = time.monotonic() + START_SECONDS
    while (
        await connection.fetchval("SELECT count(*) FROM holdfast_workers WHERE last_heartbeat_at IS NOT NULL") < count
    ):
        if time.monotonic() > give_up:
            raise RuntimeError(f"not all of {count} workers are up after {START_SECONDS:g} s")
        await asyncio.sleep(1)


async def statements(connection: Any, seconds: float) -> dict[str, int]:
    """The statements in this time with their counts, without those of the benchmark."""
    await connection.execute("SELECT pg_stat_statements_reset()")
    await asyncio.sleep(seconds)
    rows = await connection.fetch("SELECT query, calls FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_%'")
    found: dict[str, int] = {}
    for row in rows:
        shown = " ".join(row["query"].split())
        found[shown] = found.get(shown, 0) + row["calls"]
    return dict(sorted(found.items(), key=lambda each: -each[1]))


async def measure(server: PostgresServer, mode: str, sizes: Sizes) -> dict[str, Any]:
    name = f"idle_{mode}"
    connection = await asyncpg.connect(server.dsn())
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    await migrate(server.dsn(name))
    connection = await asyncpg.connect(server.dsn(name))
    await connection.execute("CREATE EXTENSION pg_stat_statements")
    with contextlib.ExitStack() as stack:
        environment = {"HOLDFAST_DISPATCH": mode}
        if mode in ("redis", "hybrid"):
            environment["HOLDFAST_REDIS_URL"] = stack.enter_context(RedisServer.started()).url
        stack.enter_context(idle_workers(server.dsn(name), sizes.workers, **environment))
        await until_all_beat(connection, sizes.workers)
        await asyncio.sleep(sizes.calm)
        found = await statements(connection, sizes.seconds)
    await connection.close()
    return {
        "mode": mode,
        "workers": sizes.workers,
        "per_second": round(sum(found.values()) / sizes.seconds, 3),
        "statements": {query: round(calls / sizes.seconds, 3) for query, calls in found.items()},
    }


def main(words: list[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--workers", type=int, help="how many (50)")
    parser.add_argument("--seconds", type=float, help="how long to count (60)")
    parser.add_argument("--modes", default="database,redis", help="ways of dispatch, the first one to compare with")
    options = parser.parse_args(words)
    sizes = QUICK if options.quick else Sizes()
    given = {name: getattr(options, name) for name in ("workers", "seconds") if getattr(options, name) is not None}
    sizes = sizes._replace(**given)
    with running(source="wheel", settings=SETTINGS) as server:  # the machine's own may come without the extension
        found = [asyncio.run(measure(server, mode, sizes)) for mode in options.modes.split(",")]
    for each in found:
        _print(each)
    first, *others = found
    for other in others:
        other["share"] = round(other["per_second"] / first["per_second"], 4)
        print(f"\n{other['mode']} sends {other['share']:.3f} of what {first['mode']} does; target: at most {TARGET}")
    write_results(options.results, "idle", quick=options.quick, stores={"postgres": found})
    return int(not options.quick and any(other["share"] > TARGET for other in others))


def _print(found: dict[str, Any]) -> None:
    rows = [[query[:90], f"{each:.2f}"] for query, each in found["statements"].items()]
    rows.append(["all", f"{found['per_second']:.2f}"])
    print_table(f"{found['workers']} idle workers, {found['mode']}", ["statement", "per second"], rows)


if __name__ == "__main__":
    sys.exit(main())
