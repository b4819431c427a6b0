"""Workers under seeded faults, and what these cost: claims given back without a run, losses, failures.

    python -m tests.known.outages.churn --seed 1 --seconds 300

Real worker processes on a real PostgreSQL, behind a wire that is cut, refused, silent; connections that the server
ends; processes that are frozen. The handlers only report progress: whatever fails, fails by the platform.
"""

import argparse
import asyncio
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from holdfast.lifecycle import State
from holdfast.model.process_role import application_name
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from tests.servers.postgres import running
from tests.servers.proxy import Proxy
from tests.worker.real_databases.ledger import Ledger, all_done
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import Command, WorkerHarness

FAULTS = ("away", "cut", "silent", "deaf", "ended", "frozen")
FAULT_SECONDS = (0.2, 2.5)
CALM_SECONDS = (0.2, 1.5)
BACKLOG = 300  # jobs that wait at most: enough that workers claim ahead
END_CONNECTIONS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name <> $1 AND pid <> pg_backend_pid()
"""


@dataclass
class Cost:
    jobs: int
    faults: Counter[str]
    given_back_without_a_run: int = 0
    reaped: Counter[str | None] = field(default_factory=Counter)
    failed: Counter[str | None] = field(default_factory=Counter)

    def __str__(self) -> str:
        faults = ", ".join(f"{number} {kind}" for kind, number in sorted(self.faults.items()))
        return (
            f"{self.jobs} jobs under {sum(self.faults.values())} faults ({faults}): "
            f"{self.given_back_without_a_run} given back without a run, "
            f"reaped {dict(self.reaped)}, failed {dict(self.failed)}"
        )


class Faults:
    def __init__(self, seed: int, proxy: Proxy, url: str, command: Command) -> None:
        self._chance, self._proxy, self._url, self._command = random.Random(seed), proxy, url, command
        self.done: Counter[str] = Counter()

    async def strike(self) -> None:
        kind, seconds = self._chance.choice(FAULTS), self._chance.uniform(*FAULT_SECONDS)
        self.done[kind] += 1
        match kind:
            case "away":
                await self._proxy.go_away()
                await asyncio.sleep(seconds)
            case "cut":
                self._proxy.cut()
            case "silent" | "deaf":
                self._proxy.swallow(requests=kind == "deaf", answers=kind == "silent")
                await asyncio.sleep(seconds)
                self._proxy.cut()  # what was swallowed cannot be mended
            case "ended":
                operator = await asyncpg.connect(self._url)
                await operator.fetchval(END_CONNECTIONS, application_name())
                await operator.close()
            case "frozen":
                [victim, *_] = sorted(self._command.workers, key=lambda _: self._chance.random())
                self._command.signal(signal.SIGSTOP, [victim])
                await asyncio.sleep(seconds)
                self._command.signal(signal.SIGCONT, [victim])
        await self._proxy.come_back()
        await asyncio.sleep(self._chance.uniform(*CALM_SECONDS))


async def churn(url: str, folder: Path, *, seed: int, seconds: float, processes: int = 2) -> Cost:
    """`url`: of an empty, migrated database. Every job that is handed in succeeds; the answer says at what cost."""
    async with Proxy.to(url) as proxy:
        jobs.app.settings = Settings(database_url=url)
        on = WorkerHarness(folder, Settings(database_url=proxy.url))
        try:
            command = await on.start("--processes", str(processes), ready=processes)
            faults = Faults(seed, proxy, url, command)
            ids = await _hand_in(faults, seconds)
            return await _cost(on, ids, faults.done)
        finally:
            await on.close()
            await jobs.app.close()


async def _hand_in(faults: Faults, seconds: float) -> list[str]:
    """As fast as they are done, while one fault follows the other."""
    ids: list[str] = []
    until, over = time.monotonic() + seconds, asyncio.Event()

    async def feed() -> None:
        engine = await jobs.app.engine()
        while not over.is_set():
            counts = await engine.reads.counts()
            if sum(number for *_, state, number in counts if state is not State.SUCCEEDED) < BACKLOG:
                made = await jobs.reports_briefly.enqueue_many([{"times": 1 + number % 3} for number in range(100)])
                ids.extend(job.id for job in made)
            await asyncio.sleep(0.05)

    feeding = asyncio.create_task(feed())
    while time.monotonic() < until:
        await faults.strike()
        if feeding.done():
            feeding.result()
    over.set()
    await feeding  # a cancelled `enqueue_many` may have been committed
    return ids


async def _cost(on: WorkerHarness, ids: list[str], faults: Counter[str]) -> Cost:
    ledger: Ledger = await all_done(on, ids, 120)
    cost = Cost(len(ids), faults, reaped=ledger.reaped())
    for event in ledger.events:
        if event.verb == "release":
            ran = any(note["epoch"] == event.epoch for note in on.handler_log.notes("started", event.job_id))
            cost.given_back_without_a_run += not ran
        elif event.verb == "fail":
            cost.failed[event.reason] += 1
    return cost


async def _main(seed: int, seconds: float) -> None:
    print(f"workers under random faults for {seconds:g} s, with seed {seed}", flush=True)
    with running() as server, tempfile.TemporaryDirectory() as folder:
        await migrate(server.dsn())
        print(await churn(server.dsn(), Path(folder), seed=seed, seconds=seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    said = parser.parse_args()
    asyncio.run(_main(said.seed, said.seconds))
