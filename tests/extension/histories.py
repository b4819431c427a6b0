"""`python -m tests.extension.histories --histories 10000`: random lives of jobs under a ledger.

Several engines share a database, as processes do; one of them lacks the extension that keeps the ledger. Hooks fail,
and engines die in the middle of what they do. Whatever happens: each job is reserved once, and settled once at its end.
"""

import argparse
import asyncio
import contextlib
import itertools
import logging
import os
import random
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Complete, Engine, Fail, Retention
from holdfast.engine.hooks.hooks import Hooks
from holdfast.errors import ExtensionMissing, HoldfastError
from holdfast.lifecycle import FINAL
from holdfast.model import Job, JobType, Lease, NewJob
from holdfast.model.reports import Rejection, Release
from holdfast.store import PostgresStore, Tx, open_store
from holdfast.store.migrate import migrate
from holdfast.store.queries import Query
from tests.extension import toy
from tests.servers.postgres import running

TYPE, PLAIN = "NOTE_WORK", "PLAIN"
LIFECYCLES = ("default", "generation", "orchestration")
STEPS, TOGETHER = 25, 25  # in one history; histories in one database
FAILS, DIES = 0.06, 0.04
END = ("commit", "release", "forfeit")
JOBS = Query("jobs", "SELECT id, type, state FROM holdfast_jobs")


async def cancel_each(engine: Engine, jobs: list[str]) -> None:
    for job in jobs:
        with contextlib.suppress(HoldfastError):
            await engine.cancel(job)


class Died(BaseException):
    """The process ended here: nothing of what it did and had not committed is left."""


class Process:
    """An engine that may die. `has_it`: the extension that keeps the ledger."""

    def __init__(self, url: str, clock: Clock, chance: random.Random, *, has_it: bool) -> None:
        self._url, self._clock, self._chance, self.has_it = url, clock, chance, has_it
        self._engine: Engine | None = None
        self.deaths = 0
        self.calm = False

    async def engine(self) -> Engine:
        if self._engine is None:
            hooks = Hooks()
            if self.has_it:
                hooks.effect("notes", ["create", "complete", "fail", "reject", "cancel", "reap"], [TYPE], self._book)
                hooks.guard("notes", ["claim", "complete"], [TYPE], self._guard)
            self._engine = Engine(await open_store(self._url, self._clock), clock=self._clock, hooks=hooks)
            types = [JobType(name=TYPE), JobType(name=PLAIN)] if self.has_it else [JobType(name=PLAIN)]
            await self._engine.job_types.declare(*types, app="accounts" if self.has_it else "other")
        return self._engine

    async def _book(self, tx: Tx, verb: str, job: Job) -> None:
        self._stumble()
        await toy.keep_books(tx, verb, job)
        self._stumble()

    async def _guard(self, _tx: Tx, _request: Any) -> None:
        self._stumble()

    def _stumble(self) -> None:
        happens = 1.0 if self.calm else self._chance.random()
        if happens < DIES:
            raise Died
        if happens < DIES + FAILS:
            raise ZeroDivisionError

    async def do(self, work: Callable[[Engine], Awaitable[Any]]) -> Any:
        """None: it died on the way, at a hook or anywhere else."""
        engine = await self.engine()
        task = asyncio.ensure_future(work(engine))
        if isinstance(engine.store, PostgresStore) and not self.calm and self._chance.random() < DIES:
            await asyncio.wait([task], timeout=self._chance.random() * 0.01)
            engine.store.abandon()
            await asyncio.gather(task, return_exceptions=True)
            return await self._died()
        try:
            return await task
        except Died:
            return await self._died()

    async def _died(self) -> None:
        self.deaths += 1
        await self.close()

    async def close(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()


class Histories:
    """Of one database, one after the other."""

    def __init__(self, url: str) -> None:
        self._clock = MovableClock()
        self._chance = random.Random()
        self.processes = [Process(url, self._clock, self._chance, has_it=has_it) for has_it in (True, True, False)]
        self.refused = 0
        self._leases: list[Lease] = []
        self._worker = ""

    async def run(self, seed: int) -> None:
        self._chance.seed(seed)
        self._worker = (await (await self.processes[0].engine()).workers.register(name=f"w{seed}")).id
        often = (self._create, self._claim, self._report)
        steps = (*often, *often, self._claim, self._report, self._sweep, self._cancel, self._operate)
        for _ in range(STEPS):
            process = self._chance.choice(self.processes)
            step = self._chance.choice(steps)
            with contextlib.suppress(HoldfastError):
                try:
                    await process.do(step)
                except ExtensionMissing:
                    assert not process.has_it
                    self.refused += 1
                    raise
        await self._finish()
        await self.check(f"seed {seed}")

    async def _create(self, engine: Engine) -> None:
        number = self._chance.randrange(1, 4)
        types = [TYPE, PLAIN] if self._chance.random() < 0.2 else [TYPE]
        jobs = [
            NewJob(
                type=self._chance.choice(types),
                lifecycle=self._chance.choice(LIFECYCLES),
                idempotency_key=str(self._chance.randrange(500)) if self._chance.random() < 0.3 else None,
                max_attempts=self._chance.randrange(1, 3),
            )
            for _ in range(number)
        ]
        await engine.create_many(jobs, accept=self._chance.random() < 0.9)

    async def _claim(self, engine: Engine) -> None:
        self._leases += await engine.claim(self._worker, limit=self._chance.randrange(1, 4), instance="i")

    async def _report(self, engine: Engine) -> None:
        some, self._leases = self._leases[:3], self._leases[3:]
        match self._chance.randrange(5):
            case 0 | 1:
                await engine.complete_many(self._worker, [Complete(one.id, one.token) for one in some] * 2)
            case 2:
                lasting = self._chance.random() < 0.5
                failures = [Fail(id=one.id, token=one.token, code="E", permanent=lasting) for one in some]
                await engine.fail_many(self._worker, failures)
            case 3:
                await engine.release_many(self._worker, [Release(one.id, one.token) for one in some])
            case _:
                verdicts = [Rejection(id=one.id, token=one.token, code="E") for one in some]
                await engine.reject_many(self._worker, verdicts)

    async def _sweep(self, engine: Engine) -> None:
        self._clock.advance(self._chance.choice([5, 45]))
        await engine.maintenance.reap(gone=["i"] if self._chance.random() < 0.5 else None)
        await engine.maintenance.requeue_due()
        await engine.maintenance.accept_orphans()
        if self._chance.random() < 0.2:
            await engine.maintenance.prune(Retention(succeeded=1, dead=1, canceled=1, rejected=1))

    async def _cancel(self, engine: Engine) -> None:
        jobs = [job.id for job in (await engine.reads.page(limit=20)).jobs if not job.final]
        if jobs:
            await cancel_each(engine, self._chance.sample(jobs, k=min(len(jobs), 2)))

    async def _operate(self, engine: Engine) -> None:
        jobs = (await engine.reads.page(limit=20)).jobs
        await engine.discard(*[job.id for job in jobs])
        if final := [job.id for job in jobs if job.final]:
            await engine.redrive(self._chance.choice(final))
        if queued := [job.id for job in jobs if job.state == "queued"]:
            await engine.reject_queued(Rejection(id=self._chance.choice(queued), token="", code="E"))

    async def _finish(self) -> None:
        """End what is left, with hooks that work: then nothing stays reserved."""
        self._leases.clear()
        for process in self.processes:
            process.calm = True
        for _ in range(20):
            engine = await self.processes[0].engine()
            self._clock.advance(400)
            await engine.maintenance.reap(gone=["i"])
            await engine.maintenance.requeue_due()
            left = [job.id for job in (await engine.reads.page(limit=200)).jobs if not job.final]
            if not left:
                break
            await cancel_each(engine, left)
            for lease in await engine.claim(self._worker, limit=100, instance="i"):
                with contextlib.suppress(HoldfastError):
                    await engine.complete(self._worker, lease.id, lease.token)
        for process in self.processes:
            process.calm = False

    async def check(self, when: str) -> None:
        await check(await self.processes[0].engine(), when)

    async def close(self) -> None:
        for process in self.processes:
            await process.close()


async def check(engine: Engine, when: str) -> None:
    """Each job of the type is reserved once, and settled once if it has ended; no other job is in the ledger."""

    async def read(tx: Tx) -> tuple[list[Any], list[Any]]:
        return await tx.all(JOBS), await tx.all(toy.ext.q.entries)

    jobs, rows = await engine.store.read(read)
    entries: dict[str, list[str]] = {}
    for row in rows:
        entries.setdefault(row["job"], []).append(row["entry"])
    known = {job["id"]: job for job in jobs}
    for job_id in {*entries, *(job["id"] for job in jobs if job["type"] == TYPE)}:
        told = sorted(entries.get(job_id, []), key="reserve".__ne__)
        state = known[job_id]["state"] if job_id in known else None  # it was pruned, so it had ended
        ended = state is None or state in FINAL
        wanted = ["reserve", toy.ENTRY[state]] if state in toy.ENTRY else ["reserve"]
        right = told == wanted or (state is None and told[:1] == ["reserve"] and told[1:] and told[1] in END)
        assert right, f"{when}: job {job_id} is {state or 'pruned'} and its entries are {told}"
        assert len(told) == (2 if ended else 1), f"{when}: job {job_id}: {told}"


@contextlib.asynccontextmanager
async def histories(url: str) -> AsyncIterator[Histories]:
    await migrate(url, [toy.ext])
    found = Histories(url)
    try:
        yield found
    finally:
        await found.close()


# -- real processes, killed ------------------------------------------------------------------------------------


async def live(url: str, seed: int, *, has_it: bool) -> None:
    """A process of its own that does whatever comes to its mind until it is killed."""
    story = Histories(url)
    process = story.processes[0 if has_it else 2]
    process.calm = True
    story._clock, story._chance = MovableClock(), random.Random(seed)
    engine = await process.engine()
    story._worker = (await engine.workers.register(name=f"live{seed}")).id
    print("ready", flush=True)
    sys.stdin.readline()
    steps = [story._create, story._claim, story._report, story._report, story._cancel, story._operate]
    for done in itertools.count(1):
        with contextlib.suppress(HoldfastError):
            await (story._create if done == 1 else story._chance.choice(steps))(engine)
            await engine.maintenance.reap(gone=["i"] if story._chance.random() < 0.3 else None)
        if done == 5:
            print("busy", flush=True)


async def killed(url: str, seed: int, rounds: int) -> int:
    """Processes with and without the extension, each killed in the middle of something, again and again."""
    chance = random.Random(seed)
    for number in range(rounds):
        # One before the others: until it has declared the type, that needs no extension.
        seeds = [seed * 1000 + number * 10 + n for n in range(3)]
        living = [await _start(url, seeds[0], has_it=True)]
        try:
            living += await asyncio.gather(*(_start(url, seeds[n], has_it=n < 2) for n in (1, 2)))
            await _kill(living, chance)
        finally:
            for process in living:
                if process.returncode is None:
                    process.kill()
                await process.wait()
    story = Histories(url)
    try:
        await story.check(f"after {rounds} rounds of kills")
        return len(await (await story.processes[0].engine()).store.read(lambda tx: tx.all(JOBS)))
    finally:
        await story.close()


async def _kill(living: list[asyncio.subprocess.Process], chance: random.Random) -> None:
    for process in living:  # together: one that must wait for busy others would take long to start
        cast(asyncio.StreamWriter, process.stdin).write(b"go\n")
    for process in living:
        await _hear(process, b"busy")
    for process in living:
        await asyncio.sleep(chance.random() * 0.4)
        assert process.returncode is None, "it ended by itself"
        process.send_signal(signal.SIGKILL)


async def _start(url: str, seed: int, *, has_it: bool) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.extension.histories", "--live", str(seed), "--url", url),
        *(() if has_it else ("--without-it",)),
        cwd=Path(__file__).parents[2],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    await _hear(process, b"ready")
    return process


async def _hear(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    assert (await process.stdout.readline()).strip() == word


async def soak(number: int, first: int) -> None:
    with running() as server, tempfile.TemporaryDirectory() as folder:
        for store in ("sqlite", "postgres"):
            for start in range(first, first + number // 2, TOGETHER):
                name = f"h{secrets.token_hex(4)}"
                url = f"sqlite:///{folder}/{name}.db"
                if store == "postgres":
                    url = await _database(server.dsn(), name)
                async with histories(url) as story:
                    for seed in range(start, start + TOGETHER):
                        await story.run(seed)
                    deaths = sum(process.deaths for process in story.processes)
                    print(f"{store}: seeds {start} to {seed} balance, {deaths} deaths", flush=True)
                if store == "sqlite":
                    os.unlink(f"{folder}/{name}.db")


async def _database(server_url: str, name: str) -> str:
    from tests.conftest import administer, with_database

    await administer(server_url, f"CREATE DATABASE {name}")
    return with_database(server_url, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000, help="half of them on each store")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--live", type=int, metavar="SEED", help="be one of the processes that are killed")
    parser.add_argument("--without-it", action="store_true")
    parser.add_argument("--url")
    options = parser.parse_args()
    if options.live is not None:
        asyncio.run(live(options.url, options.live, has_it=not options.without_it))
    else:
        logging.disable()  # thousands of hooks fail here
        asyncio.run(soak(options.histories, options.seed))


if __name__ == "__main__":
    main()
