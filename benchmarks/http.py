"""The cost of HTTP: 64 clients of one server process, compared with a bare endpoint and with plain inserts.

    python -m benchmarks.http [--quick]

On PostgreSQL that syncs every commit. The sides take turns; clients are a process of their own. Exit status 1: a target
was missed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

from benchmarks.databases import Host, PostgresDatabase, cpu_seconds, host
from benchmarks.implementations import PAYLOAD, RawPostgres
from benchmarks.measurement import say
from benchmarks.report import arguments, print_table, write_results
from benchmarks.streams import Server, serving
from holdfast.assembly.engine import open_engine
from holdfast.model import NewJob
from holdfast.model.key import NewKey
from holdfast.settings import Settings

CLIENTS = 64
TARGETS = {
    "POST /jobs, of the bare endpoint": 0.5,
    "POST /jobs, of inserts one by one": 1.5,
    "GET /jobs/{id}, of the bare endpoint": 0.5,
}
P99_MAX = 5.0  # times p50


class Sizes(NamedTuple):
    rounds: int = 7
    seconds: float = 2.0
    jobs: int = 1000  # to be asked after


QUICK = Sizes(rounds=1, seconds=0.2, jobs=64)


class Load:
    """The clients' process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, server: Server, requests: list[str], status: int, seconds: float) -> dict[str, Any]:
        """The measurements of the clients, and the CPU time of the server."""
        before = cpu_seconds([server.pid]) or 0.0
        found = self._order(server.port, requests, status, seconds)
        return found | {"cpu_micros": 1e6 * ((cpu_seconds([server.pid]) or 0.0) - before) / found["requests"]}

    def _order(self, port: int, requests: list[str], status: int, seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"port": port, "requests": requests, "status": status, "clients": CLIENTS, "seconds": seconds}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the clients' process has ended"
        return dict(json.loads(answer))


@contextmanager
def clients() -> Iterator[Load]:
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load_generator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Load(process)
        process.terminate()


@contextmanager
def bare() -> Iterator[Server]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    with subprocess.Popen([sys.executable, "-m", "benchmarks.baseline_server", str(port)]) as process:
        try:
            for _ in range(600):
                with socket.socket() as knocking:
                    if knocking.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield Server(process.pid, port)
        finally:
            process.terminate()


def post(key: str) -> list[str]:
    body = json.dumps({"jobType": "bench", "payload": PAYLOAD})
    head = (
        f"POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    )
    return [f"{head}content-length: {len(body)}\r\n\r\n{body}"]


def gets(key: str, jobs: list[str]) -> list[str]:
    return [f"GET /jobs/{job} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n\r\n" for job in jobs]


async def inserts(raw: RawPostgres, seconds: float) -> dict[str, Any]:
    begin, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds:
        await raw.create(1)
        done += 1
    return {"requests": done, "seconds": passed}


async def measure(machine: Host, sizes: Sizes) -> dict[str, list[dict[str, Any]]]:
    """The rounds of each candidate."""
    async with machine.fresh() as database:
        assert isinstance(database, PostgresDatabase)
        engine = await open_engine(Settings(database_url=database.url))
        _, key = await engine.keys.create(NewKey(name="bench"))
        jobs = [job.id for job in await engine.create_many([NewJob(type="asked") for _ in range(sizes.jobs)])]
        await engine.close()
        raw = RawPostgres(database)
        await raw.prepare()
        taken: dict[str, list[dict[str, Any]]] = {}
        with serving(database.url) as server, bare() as plain, clients() as load:
            for number in range(sizes.rounds + (sizes.rounds > 1)):
                say(f"  round {number} of {sizes.rounds}" if number else "  warming up")
                turn = {
                    "bare POST": lambda: load.run(plain, post(key), 202, sizes.seconds),
                    "POST /jobs": lambda: load.run(server, post(key), 202, sizes.seconds),
                    "bare GET": lambda: load.run(plain, gets(key, jobs), 200, sizes.seconds),
                    "GET /jobs/{id}": lambda: load.run(server, gets(key, jobs), 200, sizes.seconds),
                }
                found = {name: await asyncio.to_thread(run) for name, run in turn.items()}
                found["inserts"] = await inserts(raw, sizes.seconds)
                await database.settle("holdfast_jobs", "holdfast_events", "raw_jobs")
                if number or sizes.rounds == 1:
                    for name, each in found.items():
                        taken.setdefault(name, []).append(each)
    return taken


def rate(each: dict[str, Any]) -> float:
    return float(each["requests"] / each["seconds"])


def share(taken: dict[str, list[dict[str, Any]]], name: str, other: str) -> float:
    return median(rate(mine) / rate(its) for mine, its in zip(taken[name], taken[other], strict=True))


def judged(taken: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    sides = [("POST /jobs", "bare POST"), ("POST /jobs", "inserts"), ("GET /jobs/{id}", "bare GET")]
    figures = [
        {"figure": figure, "value": share(taken, *pair), "target": target, "met": share(taken, *pair) >= target}
        for (figure, target), pair in zip(TARGETS.items(), sides, strict=True)
    ]
    spread = median(each["p99_ms"] / each["p50_ms"] for each in taken["POST /jobs"])
    return [
        *figures,
        {"figure": "POST /jobs, p99 over p50", "value": spread, "target": P99_MAX, "met": spread <= P99_MAX},
    ]


def main(given: list[str] | None = None) -> int:
    options = arguments(__doc__).parse_args(given)
    with host("postgres") as machine:
        taken = asyncio.run(measure(machine, QUICK if options.quick else Sizes()))
    print_table(
        f"{CLIENTS} clients, one server process, PostgreSQL",
        ["", "a second", "p50 ms", "p99 ms", "server's µs"],
        [[name, f"{median(map(rate, rounds)):,.0f}", *_times(rounds)] for name, rounds in taken.items()],
    )
    results = judged(taken)
    rows = [
        [each["figure"], f"{each['value']:.2f}", f"{each['target']:g}", "" if each["met"] else "missed"]
        for each in results
    ]
    print_table("Against the aims", ["", "is", "aim", ""], rows)
    write_results(options.results, "http", quick=options.quick, stores={"postgres": [{"rounds": taken}, *results]})
    return int(not options.quick and not all(each["met"] for each in results))


def _times(rounds: list[dict[str, Any]]) -> list[str]:
    if "p50_ms" not in rounds[0]:
        return ["", "", ""]
    return [f"{median(each[name] for each in rounds):.2f}" for name in ("p50_ms", "p99_ms", "cpu_micros")]


if __name__ == "__main__":
    sys.exit(main())
