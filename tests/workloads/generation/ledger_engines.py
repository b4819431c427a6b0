"""Engines on one database, with the generation service or without it, and what its ledger says.

The service is a module of this process, as in production; each engine is what a process has of it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import msgspec

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Created, Engine
from holdfast.engine.hooks.hooks import Hooks
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.model import Lease, NewJob
from holdfast.model.reports import Complete, HeldLease
from holdfast.store import Row, Tx, open_store
from holdfast.store.open_transaction import transaction
from holdfast.store.queries import Query
from holdfast.workloads.generation import ext, ledger
from holdfast.workloads.generation.hooks import RUN
from holdfast.workloads.generation.ledger_check import LedgerTotals, check_ledger
from holdfast.workloads.generation.service import app
from holdfast.workloads.generation.settings import Settings
from holdfast.workloads.generation.wanted import Wanted

TENANT = "default"
ENTRIES = Query("all_entries", "SELECT * FROM holdfast_generation_entry ORDER BY tenant, user_id, seq")
ACCOUNTS = Query("all_accounts", "SELECT * FROM holdfast_generation_account ORDER BY tenant, user_id")
REQUESTS = Query("all_requests", "SELECT * FROM holdfast_generation_request ORDER BY id")
JOBS = Query(
    "all_generations",
    "SELECT id, state, payload, created_at FROM holdfast_jobs WHERE type = 'GENERATION_RUN' ORDER BY id",
)
_numbers = itertools.count(1)


@contextmanager
def generation_service(url: str, clock: Clock, **settings: Any) -> Iterator[None]:
    """The app on this database and with this clock, and with these settings of the service."""
    before = ext.given_settings
    ext.settings = Settings(**settings)
    try:
        with app.override(url, clock, Ids()):
            yield
    finally:
        ext.settings = before


@asynccontextmanager
async def opened(url: str, clock: Clock | None = None, *, has_it: bool = True) -> AsyncIterator[Engine]:
    engine = await open_engine(url, clock or MovableClock(), has_it=has_it)
    try:
        yield engine
    finally:
        await engine.close()


async def open_engine(url: str, clock: Clock, *, has_it: bool = True, hooks: Hooks | None = None) -> Engine:
    """One that lacks the service has another app, or none."""
    hooks = hooks or (app.hooks() if has_it else Hooks())
    lifecycles = app.lifecycles if has_it else Lifecycles()
    engine = Engine(await open_store(url, clock), clock=clock, lifecycles=lifecycles, hooks=hooks)
    if has_it:
        types = [each.job_type for each in app.handlers.values()]
        await engine.job_types.declare(*types, app=app.name)
    return engine


def generation(user: str = "ann", *, count: int = 1, prompt: str = "", **job: Any) -> NewJob:
    """Without a prompt, it is a request like no other."""
    payload = {
        "user": user,
        "prompt": prompt or f"a lighthouse {os.getpid()} {next(_numbers)}",
        "count": count,
        "width": 64,
    }
    return NewJob(type=RUN, payload=payload, **{"lifecycle": "generation", "queue": "generation", **job})


async def create(engine: Engine, user: str = "ann", **wanted: Any) -> Created:
    return await engine.create(generation(user, **wanted))


async def worker(engine: Engine) -> str:
    return (await engine.workers.register(name="tester")).id


async def claimed(engine: Engine, by: str, user: str = "ann", **wanted: Any) -> Lease:
    """A new generation, running."""
    made = await create(engine, user, **wanted)
    [lease] = await engine.claim(by, types=[RUN], limit=1, instance="here")
    assert lease.id == made.id
    return lease


async def finish(engine: Engine, by: str, lease: Lease, images: int) -> None:
    """Publish so many images and complete the job, as its handler does."""
    async with transaction(engine.store) as tx:
        within = engine.within(tx)
        await within.hold(HeldLease(lease.id, lease.token))
        await put_assets(tx, lease.id, images)
        await within.complete(by, Complete(lease.id, lease.token, {}))


async def put_assets(tx: Tx, job_id: str, images: int) -> None:
    rows = [(f"{job_id}-{n}", n, f"{job_id}/{n}", "image/png", 64, 64, 9, "0" * 64, n) for n in range(1, images + 1)]
    if rows:
        await tx.run(ext.q.put_assets, made=rows, job_id=job_id, search="")


async def grant(engine: Engine, user: str, amount: int, key: str | None = None) -> ledger.Grant:
    async with transaction(engine.store) as tx:
        return await ledger.grant(tx, (TENANT, user), amount, "a gift", key)


async def rows(engine: Engine, query: Query) -> list[Row]:
    return await engine.store.read(lambda tx: tx.all(query))


async def entries(engine: Engine, user: str = "ann") -> list[tuple[str, int]]:
    """Without the starting credits."""
    found = [row for row in await rows(engine, ENTRIES) if row["user_id"] == user]
    return [(row["kind"], row["amount"]) for row in found if row["reason"] != "starting credits"]


async def entries_of(engine: Engine, job_id: str) -> dict[str, int]:
    return {row["kind"]: row["amount"] for row in await rows(engine, ENTRIES) if row["job_id"] == job_id}


async def has(engine: Engine, user: str = "ann") -> tuple[int, int]:
    """Balance and reserved."""
    found = await engine.store.read(lambda tx: ledger.credits_of(tx, (TENANT, user)))
    return found.balance, found.reserved


async def check(engine: Engine) -> LedgerTotals:
    totals = await check_ledger(engine.store.read)
    assert totals.faults == []
    assert totals.sum == 0
    return totals


# -- all that must be true -------------------------------------------------------------------------------------


class Books(NamedTuple):
    """What the database has, of one moment."""

    jobs: list[Row]
    entries: list[Row]
    accounts: list[Row]
    requests: list[Row]
    assets: list[Row]


ASSETS = Query("made", "SELECT job_id, count(*) AS made FROM holdfast_generation_asset GROUP BY job_id")
FINAL = {"succeeded", "dead", "canceled", "rejected"}
QUERIES = (JOBS, ENTRIES, ACCOUNTS, REQUESTS, ASSETS)


async def read_books(engine: Engine) -> Books:
    async def read(tx: Tx) -> Books:
        return Books(*[await tx.all(query) for query in QUERIES])

    return await engine.store.read(read)


async def check_books(engine: Engine, when: str, cost: int) -> Books:
    """The ledger by its own proof, and against the jobs. Nothing may be moving meanwhile."""
    totals, books = await check_ledger(engine.store.read), await read_books(engine)
    assert (totals.faults, totals.sum) == ([], 0), when
    of_job: dict[str, dict[str, int]] = {}
    for row in books.entries:
        assert row["amount"] > 0, when
        assert row["balance"] >= row["reserved"] >= 0, when
        if row["job_id"] is not None:
            assert row["kind"] not in of_job.setdefault(row["job_id"], {}), f"{when}: {row['kind']} twice"
            of_job[row["job_id"]][row["kind"]] = row["amount"]
    made, jobs = {row["job_id"]: row["made"] for row in books.assets}, {row["id"]: row for row in books.jobs}
    assert of_job.keys() >= jobs.keys(), f"{when}: a job without a reservation"
    for job_id, amounts in of_job.items():
        told, job = f"{when}: job {job_id}: {amounts}", jobs.get(job_id)
        reserved, settled = amounts["reserve"], sum(amounts.values()) - amounts["reserve"]
        if job is None:  # it was pruned, so it had ended
            assert reserved == settled, told
            continue
        assert amounts == expected(job, made.get(job_id, 0), cost), f"{told} and is {job['state']}"
    _check_accounts(books, of_job, when)
    _check_requests(books, of_job, when)
    return books


def expected(job: Row, made: int, cost: int) -> dict[str, int]:
    count = wanted_of(job).count
    amounts = {"reserve": cost * count}
    match job["state"]:
        case "succeeded":
            amounts |= {"commit": cost * made, "release": cost * (count - made)}
        case "rejected":
            amounts |= {"forfeit": cost * count}
        case "dead" | "canceled":
            amounts |= {"release": cost * count}
    return {kind: amount for kind, amount in amounts.items() if amount}


def wanted_of(job: Row) -> Wanted:
    return Wanted.of(msgspec.json.decode(job["payload"]))


def _check_accounts(books: Books, of_job: dict[str, dict[str, int]], when: str) -> None:
    """What is reserved is the sum over unfinished jobs."""
    reserved: dict[str, int] = {}
    for job in books.jobs:
        if job["state"] not in FINAL:
            user = wanted_of(job).user
            reserved[user] = reserved.get(user, 0) + of_job[job["id"]]["reserve"]
    for account in books.accounts:
        assert account["balance"] >= 0, when
        assert account["reserved"] == reserved.get(account["user_id"], 0), f"{when}: {account['user_id']}"


def _check_requests(books: Books, of_job: dict[str, dict[str, int]], when: str) -> None:
    """The row that clients see: of the newest job, with what all of its jobs have cost."""
    jobs = {job["id"]: job for job in books.jobs}
    for request in books.requests:
        job, told = jobs.get(request["job_id"]), f"{when}: request {request['id']}"
        if job is not None:
            ended = job["state"] in FINAL
            assert (request["finished_at"] is not None) == ended, told
            assert request["credits"] == (0 if ended else of_job[job["id"]]["reserve"]), told
