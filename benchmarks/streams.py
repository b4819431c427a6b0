"""The cost of many idle event streams: connections, memory, and the throughput of jobs.

    python -m benchmarks.streams [--store postgres] [--streams 1000] [--quick]

A server in a process of its own; rounds with and without streams take turns. Exit status 1: a target was missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.databases import Database, Host, host
from benchmarks.report import arguments, chosen_stores, print_table, write_results
from holdfast.assembly.engine import open_engine
from holdfast.engine import Complete, Engine
from holdfast.model import NewJob
from holdfast.settings import Settings

PACE_MIN = 0.9  # of the jobs per second without streams
MEMORY_MAX_MB = 100.0
CALLERS = 16
START_SECONDS = 30.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Sizes(NamedTuple):
    streams: int = 1000
    rounds: int = 5
    jobs: int = 2000


QUICK = Sizes(streams=20, rounds=1, jobs=32)


class Server(NamedTuple):
    """A server process, observed from outside."""

    pid: int
    port: int

    @property
    def memory_mb(self) -> float:
        fields = Path(f"/proc/{self.pid}/status").read_text().split("VmRSS:")[1]
        return int(fields.split()[0]) / 1024


@contextmanager
def serving(url: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "serve", "--database", url, "--port", "0"],
            cwd=folder,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Server(process.pid, _port(process, said))
        finally:
            process.terminate()
            process.wait()


def _port(process: subprocess.Popen[bytes], said: Any) -> int:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        said.seek(0)
        _, ready, rest = said.read().partition("ready: http://127.0.0.1:")
        if ready and rest:
            return int(rest.split(",")[0])
        time.sleep(0.05)
    said.seek(0)
    raise RuntimeError(f"the server did not start: {said.read()}")


@asynccontextmanager
async def watched(server: Server, job_ids: list[str]) -> AsyncIterator[list[Stream]]:
    """A stream for each of these jobs, all caught up."""
    streams = [await _stream(server, job_id) for job_id in job_ids]
    try:
        yield streams
    finally:
        for _, writer in streams:
            writer.close()


async def _stream(server: Server, job_id: str) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET /jobs/{job_id}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    while b'"verb":"create"' not in (line := await reader.readline()):
        assert line, "the stream has ended"
    return reader, writer


async def jobs_through(server: Server, engine: Engine, worker: str, jobs: int) -> float:
    """Jobs per second, created over HTTP by concurrent clients, and completed by a local worker."""
    began = time.perf_counter()
    await asyncio.gather(*(_hand_in(server, jobs // CALLERS) for _ in range(CALLERS)))
    done = 0
    while leases := await engine.claim(worker, types=["bench"], limit=100):
        await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases])
        done += len(leases)
    assert done == jobs // CALLERS * CALLERS
    return done / (time.perf_counter() - began)


async def _hand_in(server: Server, jobs: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = b'{"jobType":"bench","payload":{"n":1}}'
    head = b"POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    for _ in range(jobs):
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 202 " in answer.split(b"\r\n")[0], answer
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
    writer.close()


async def connections(database: Database) -> int | None:
    if database.dialect == "sqlite":
        return None
    [row] = await database.rows("SELECT count(*) AS open FROM pg_stat_activity WHERE datname = current_database()")
    return int(row["open"])


async def measure(store: str, machine: Host, sizes: Sizes) -> dict[str, Any]:
    async with machine.fresh() as database:
        engine = await open_engine(Settings(database_url=database.url))
        with serving(database.url) as server:
            worker = (await engine.workers.register(name="bench")).id
            idle = [(await engine.create(NewJob(type="idle", queue="idle"))).id for _ in range(sizes.streams)]
            await jobs_through(server, engine, worker, sizes.jobs)  # warm
            paces: dict[str, list[float]] = {"without": [], "with": []}
            before, open_before = server.memory_mb, await connections(database)
            more_memory = 0.0
            open_with = open_before
            for _ in range(sizes.rounds):
                paces["without"].append(await jobs_through(server, engine, worker, sizes.jobs))
                async with watched(server, idle):
                    more_memory = max(more_memory, server.memory_mb - before)
                    open_with = await connections(database)
                    paces["with"].append(await jobs_through(server, engine, worker, sizes.jobs))
                    more_memory = max(more_memory, server.memory_mb - before)
        await engine.close()
    medians = {name: statistics.median(each) for name, each in paces.items()}
    return {
        "store": store,
        "streams": sizes.streams,
        "pace": medians["with"] / medians["without"],
        "jobs_per_second": {name: round(each, 1) for name, each in medians.items()},
        "rounds": paces,
        "more_memory_mb": round(more_memory, 1),
        "connections": None if open_with is None else {"without": open_before, "with": open_with},
    }


def main(given: list[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--streams", type=int, default=None, help="how many (1000)")
    options = parser.parse_args(given)
    sizes = QUICK if options.quick else Sizes()
    sizes = sizes._replace(streams=options.streams or sizes.streams)
    with contextlib.suppress(ValueError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (4 * sizes.streams + 1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
    found = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            found[store] = asyncio.run(measure(store, machine, sizes))
    print_table(
        f"{sizes.streams:,} streams at which nothing happens",
        ["store", "jobs/s without", "jobs/s with", "share", "more memory", "connections"],
        [_row(store, each) for store, each in found.items()],
    )
    write_results(
        options.results, "streams", quick=options.quick, stores={name: [each] for name, each in found.items()}
    )
    return int(not options.quick and any(_missed(each) for each in found.values()))


def _row(store: str, found: dict[str, Any]) -> list[str]:
    held = found["connections"]
    return [
        store,
        f"{found['jobs_per_second']['without']:,.0f}",
        f"{found['jobs_per_second']['with']:,.0f}",
        f"{found['pace']:.2f}",
        f"{found['more_memory_mb']:.0f} MB",
        "" if held is None else f"{held['without']} -> {held['with']}",
    ]


def _missed(found: dict[str, Any]) -> bool:
    held = found["connections"]
    holds = held is not None and held["with"] > held["without"] + 10  # the pool's own, never one for each stream
    return found["pace"] < PACE_MIN or found["more_memory_mb"] > MEMORY_MAX_MB or holds


if __name__ == "__main__":
    sys.exit(main())
