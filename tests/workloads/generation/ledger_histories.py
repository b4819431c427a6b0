"""`python -m tests.workloads.generation.ledger_histories --histories 100000`: random lives of generations.

Three engines share a database, as processes do; one of them lacks the generation service. They create, run, end, cancel
and redrive generations of a few users with few credits and a small quota, and die before and after their commits and in
the middle of them. Whatever happens, the ledger is right after each history, and after each step of some.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from holdfast.clock import MovableClock
from holdfast.engine import Engine, Retention
from holdfast.engine.admin.bulk import BulkCancel, BulkRedrive, BulkWake, carry_out
from holdfast.engine.insert import checked
from holdfast.errors import ExtensionMissing, HoldfastError, PaymentRequired, TooMany
from holdfast.extend import Tx
from holdfast.model import Lease
from holdfast.model.reports import Complete, Fail, Rejection, Release
from holdfast.store.migrate import migrate
from holdfast.workloads.generation import ext
from holdfast.workloads.generation.hooks import RUN
from holdfast.workloads.generation.service import app
from tests.servers.postgres import running
from tests.workloads.generation import ledger_engines as on

COST, SETTINGS = 3, {"cost": 3, "starting_credits": 10, "quota_per_day": 11, "quota_per_month": 60}
USERS = ("ann", "bob", "cem")
STEPS, TOGETHER = 8, 100  # in one history; histories in one database
CLOSELY = 10  # of so many histories, one is checked after each step
DIES, STUMBLES = 0.06, 0.05
EFFECTS = ("create", "claim", "complete", "fail", "release", "reject", "cancel", "reap", "requeue")


class Died(BaseException):
    """The process ended here."""


class Mortal:
    """An engine that may die before a commit, after one, or in the middle of a transition."""

    def __init__(self, url: str, clock: MovableClock, chance: random.Random, *, has_it: bool) -> None:
        self._url, self._clock, self._chance, self.has_it = url, clock, chance, has_it
        self._engine: Engine | None = None
        self.deaths: Counter[str] = Counter()
        self.calm = False

    async def engine(self) -> Engine:
        if self._engine is None:
            hooks = None
            if self.has_it:
                hooks = app.hooks()
                hooks.effect("generation", EFFECTS, [RUN], self._stumble)
            self._engine = await on.open_engine(self._url, self._clock, has_it=self.has_it, hooks=hooks)
            self._make_mortal(self._engine.store)
        return self._engine

    def _make_mortal(self, store: Any) -> None:
        write = store.write

        async def mortal_write(work: Any, **how: Any) -> Any:
            fate = "" if self.calm else self._fate()

            async def doomed(tx: Tx) -> Any:
                answer = await work(tx)
                if fate == "before a commit":
                    await tx.flush()
                    self._die(fate)
                return answer

            answer = await write(doomed, **how)
            if fate == "after a commit":
                self._die(fate)
            return answer

        store.write = mortal_write

    def _fate(self) -> str:
        chance = self._chance.random()
        return "before a commit" if chance < DIES / 2 else "after a commit" if chance < DIES else ""

    def _die(self, when: str) -> None:
        self.deaths[when] += 1
        raise Died

    async def _stumble(self, _tx: Tx, _verb: str, _job: Any) -> None:
        """As the last effect of a transition: everything of it is written, and nothing is kept."""
        chance = 1.0 if self.calm else self._chance.random()
        if chance < STUMBLES / 2:
            self._die("in a transition")
        if chance < STUMBLES:
            raise ZeroDivisionError

    async def do(self, work: Callable[[Engine], Awaitable[Any]]) -> None:
        try:
            await work(await self.engine())
        except Died:
            await self.close()

    async def close(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()


class LedgerHistories:
    """Of one database, one after the other."""

    def __init__(self, url: str, clock: MovableClock) -> None:
        self._clock, self._chance = clock, random.Random()
        self.processes = [Mortal(url, clock, self._chance, has_it=has_it) for has_it in (True, True, False)]
        self.seen: Counter[str] = Counter()
        self._leases: list[Lease] = []
        self._worker, self._keys = "", 0

    async def begin(self) -> None:
        process = self.processes[0]
        process.calm = True
        self._worker = await on.worker(await process.engine())
        process.calm = False

    async def run(self, seed: int) -> None:
        self._chance.seed(seed)
        often = (self._create, self._claim, self._report)
        steps = (*often, *often, self._report, self._sweep, self._cancel, self._operate, self._grant, self._end_many)
        for number in range(STEPS):
            process, step = self._chance.choice(self.processes), self._chance.choice(steps)
            try:
                await process.do(step)
            except ExtensionMissing:
                assert not process.has_it
                self.seen["refused without the service"] += 1
            except HoldfastError as error:
                self.seen[error.code] += 1
            if seed % CLOSELY == 0:
                await self.check(f"seed {seed}, step {number}, {step.__name__}")
        await self.check(f"seed {seed}")

    # -- steps ------------------------------------------------------------------------------------------------

    async def _create(self, engine: Engine) -> None:
        """A few prompts, so that some requests are repeats; sometimes a batch, all or none, or each by itself."""
        jobs = [
            on.generation(
                self._chance.choice(USERS),
                count=self._chance.randrange(1, 5),
                prompt=f"a fox {self._chance.randrange(30)}",
                max_attempts=self._chance.randrange(1, 3),
                idempotency_key=f"k{self._chance.randrange(60)}" if self._chance.random() < 0.2 else None,
            )
            for _ in range(self._chance.choice([1, 1, 2, 3]))
        ]
        if self._chance.random() < 0.5:
            await engine.create_many(jobs)
            return
        answers = await engine.create_each([checked(job) for job in jobs])
        for answer in answers:
            if isinstance(answer, PaymentRequired | TooMany):
                self.seen[answer.code] += 1

    async def _claim(self, engine: Engine) -> None:
        self._leases += await engine.claim(self._worker, limit=self._chance.randrange(1, 4), instance="i")

    async def _report(self, engine: Engine) -> None:
        if not self._leases:
            await self._claim(engine)
        some, self._leases = self._leases[:2], self._leases[2:]
        kind = self._chance.randrange(7)
        for lease in some:
            if kind < 3:
                images = self._chance.randrange(lease.payload["count"] + 1)
                await on.finish(engine, self._worker, lease, images)
            elif kind < 5:
                lasting = self._chance.random() < 0.5
                await engine.fail(self._worker, lease.id, lease.token, "provider_failed", permanent=lasting)
            elif kind == 5:
                await engine.reject(self._worker, lease.id, lease.token, "image_rejected")
            else:
                await engine.release(self._worker, lease.id, lease.token, delay_seconds=self._chance.choice([0, 30]))

    async def _end_many(self, engine: Engine) -> None:
        """Several outcomes in one transaction, some of them twice."""
        some, self._leases = self._leases[:3], self._leases[3:]
        match self._chance.randrange(4):
            case 0:
                await engine.complete_many(self._worker, [Complete(one.id, one.token, {}) for one in some] * 2)
            case 1:
                failed = [Fail(id=one.id, token=one.token, code="E", permanent=True) for one in some]
                await engine.fail_many(self._worker, failed * 2)
            case 2:
                await engine.reject_many(
                    self._worker, [Rejection(id=one.id, token=one.token, code="E") for one in some] * 2
                )
            case _:
                await engine.release_many(self._worker, [Release(one.id, one.token) for one in some])

    async def _sweep(self, engine: Engine) -> None:
        self._clock.advance(self._chance.choice([5, 45, 130, 3600, 40_000]))
        await engine.maintenance.reap(gone=["i"] if self._chance.random() < 0.5 else None)
        await engine.maintenance.requeue_due()
        if self._chance.random() < 0.1:
            await engine.maintenance.prune(Retention(succeeded=1, dead=1, canceled=1, rejected=1))

    async def _cancel(self, engine: Engine) -> None:
        jobs = [job.id for job in (await engine.reads.page(limit=20)).jobs if not job.final]
        some = self._chance.sample(jobs, k=min(len(jobs), 2))
        if self._chance.random() < 0.3:
            await carry_out(engine, BulkCancel(), some)
            return
        for job in some:
            await engine.cancel(job)

    async def _operate(self, engine: Engine) -> None:
        jobs = (await engine.reads.page(limit=20)).jobs
        final = [job.id for job in jobs if job.final]
        queued = [job.id for job in jobs if job.state == "queued"]
        match self._chance.randrange(5):
            case 0:
                await engine.discard(*[job.id for job in jobs])
            case 1 if final:
                await engine.redrive(self._chance.choice(final))
            case 2 if final:
                await carry_out(engine, BulkRedrive(), final[:3])
            case 3 if queued:
                await engine.reject_queued(Rejection(id=self._chance.choice(queued), token="", code="E"))
            case _:
                await carry_out(engine, BulkWake(), [job.id for job in jobs if not job.final][:3])

    async def _grant(self, engine: Engine) -> None:
        self._keys += 1
        user, amount = self._chance.choice(USERS), self._chance.randrange(1, 15)
        key = f"grant {self._keys}"
        for _ in range(self._chance.choice([1, 2])):
            await on.grant(engine, user, amount, key)

    # -- afterwards -------------------------------------------------------------------------------------------

    async def check(self, when: str) -> None:
        process = self.processes[0]
        process.calm = True
        books = await on.check_books(await process.engine(), when, COST)
        process.calm = False
        made = {row["job_id"]: row["made"] for row in books.assets}
        for account in books.accounts:
            of_day = [job for job in books.jobs if counts(job, account)]
            used = sum(images(job, made.get(job["id"], 0)) for job in of_day)
            requested = [row for row in books.entries if is_request(row, account)]
            if len(requested) == len(of_day):  # no job of that day was pruned
                assert account["day_images"] == used, f"{when}: {account['user_id']}"
            assert used <= account["day_images"] <= SETTINGS["quota_per_day"], f"{when}: {account['user_id']}"

    async def close(self) -> None:
        for process in self.processes:
            await process.close()


def counts(job: Any, account: Any) -> bool:
    return on.wanted_of(job).user == account["user_id"] and day_of(job["created_at"]) == account["day"]


def is_request(entry: Any, account: Any) -> bool:
    of_user = (entry["user_id"], entry["kind"]) == (account["user_id"], "reserve")
    return of_user and day_of(entry["at"]) == account["day"]


def day_of(stored: Any) -> str:
    at = stored if isinstance(stored, datetime) else datetime.fromtimestamp(stored / 1e6, UTC)
    return f"{at.astimezone(UTC):%Y-%m-%d}"


def images(job: Any, made: int) -> int:
    """That count for the quota."""
    match job["state"]:
        case "succeeded":
            return made
        case "dead" | "canceled":
            return 0
    return on.wanted_of(job).count


@contextlib.asynccontextmanager
async def histories(url: str) -> AsyncIterator[LedgerHistories]:
    """On a database that has the tables of the service."""
    clock = MovableClock()
    with on.generation_service(url, clock, **SETTINGS):
        found = LedgerHistories(url, clock)
        try:
            await found.begin()
            yield found
        finally:
            await found.close()


async def run_all(url: str, seeds: range) -> Counter[str]:
    """What has happened in them."""
    async with histories(url) as story:
        for seed in seeds:
            await story.run(seed)
        for process in story.processes:
            story.seen.update(process.deaths)
        return story.seen


async def soak(number: int, first: int) -> None:
    """Half of them on each store."""
    from tests.conftest import administer, with_database

    with running() as server, tempfile.TemporaryDirectory() as folder:
        await administer(server.dsn(), "CREATE DATABASE template_of_histories")
        await migrate(with_database(server.dsn(), "template_of_histories"), [ext])
        for store in ("sqlite", "postgres"):
            began = time.monotonic()
            for start in range(first, first + number // 2, TOGETHER):
                name = f"h{secrets.token_hex(4)}"
                url = f"sqlite:///{folder}/{name}.db"
                if store == "sqlite":
                    await migrate(url, [ext])
                else:
                    await administer(server.dsn(), f"CREATE DATABASE {name} TEMPLATE template_of_histories")
                    url = with_database(server.dsn(), name)
                seen = await run_all(url, range(start, start + TOGETHER))
                if store == "sqlite":
                    os.unlink(f"{folder}/{name}.db")
                else:
                    await administer(server.dsn(), f"DROP DATABASE {name} WITH (FORCE)")
                pace = (start + TOGETHER - first) / (time.monotonic() - began)
                print(f"{store}: to seed {start + TOGETHER - 1}, {pace:.1f} per second, {dict(seen)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=100_000, help="half of them on each store")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable()  # thousands of hooks fail here
    asyncio.run(soak(options.histories, options.seed))


if __name__ == "__main__":
    main()
