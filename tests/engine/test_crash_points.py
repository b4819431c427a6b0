"""A process that crashes between any two statements of a verb leaves no partial write."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Complete, Engine, Fail, Progress, Rejection, Release, Retention
from holdfast.errors import HoldfastError
from holdfast.ids import SeededIds
from holdfast.lifecycle import FINAL, Lifecycles, State
from holdfast.model import Lease, NewJob, Part
from holdfast.store import Row, Tx, direct_connection, open_store
from holdfast.store.base import Work
from holdfast.store.queries import Query
from tests.engine.dying_connection import DyingConnection, statements_of_a_direct_create
from tests.engine.steps import UNKNOWN_ID, ask, assert_consistent, bring, held, run

ROOT = Path(__file__).parents[2]


class Crash(Exception):
    """The process died here."""


class CrashingStore:
    """A store that crashes before its n-th statement."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.dialect = store.dialect
        self.close = store.close
        self.left = -1
        self.alone = False

    async def write(self, work: Work[Any], *, alone: bool = False, **_: bool) -> Any:
        self.alone = alone
        return await self._store.write(lambda tx: work(CrashingTx(tx, self)), alone=alone)

    async def read(self, work: Work[Any]) -> Any:
        return await self._store.read(work)

    def step(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1


class CrashingTx:
    def __init__(self, tx: Tx, store: CrashingStore) -> None:
        self._tx = tx
        self._store = store
        self.after_commit = tx.after_commit
        self.alone = False  # a crashed process sends no answer, whatever it had committed
        self.lock_seconds, self.one_writer = tx.lock_seconds, tx.one_writer
        self.lock_errors, self.wait_for_locks = tx.lock_errors, tx.wait_for_locks
        self.run, self.flush, self.savepoint, self.call = tx.run, tx.flush, tx.savepoint, tx.call

    async def all(self, query: Query, **params: Any) -> list[Row]:
        self._store.step()
        rows = await self._tx.all(query, **params)
        self._store.step()
        return rows

    async def one(self, query: Query, **params: Any) -> Row | None:
        rows = await self.all(query, **params)
        return rows[0] if rows else None


async def everything(engine: Engine) -> list[tuple[Any, ...]]:
    tables = [("jobs", "id"), ("events", "job_id, seq"), ("attempts", "job_id, epoch"), ("parts", "job_id, name")]
    return [
        tuple(row)
        for table, order in tables
        for row in await ask(engine, f"SELECT * FROM holdfast_{table} ORDER BY {order}")
    ]


class VerbScenario:
    """Each method prepares jobs and returns a verb to call on them."""

    def __init__(self, engine: Engine, worker: str, clock: MovableClock) -> None:
        self.engine, self.worker, self.clock = engine, worker, clock

    async def hold(self, *lifecycles: str) -> list[Lease]:
        return [
            await run(self.engine, self.worker, lifecycle=name, instance="here", max_attempts=2) for name in lifecycles
        ]

    async def create(self) -> Callable[[], Awaitable[Any]]:
        freed = NewJob(type="a", lifecycle="generation", idempotency_key="freed")
        kept = NewJob(type="b", idempotency_key="kept")
        rejected, _ = await self.engine.create_many([freed, kept])
        await self.engine.reject_queued(Rejection(id=rejected.id, token="", code="E"))
        return lambda: self.engine.create_many([NewJob(type="new"), kept, freed, NewJob(type="newer", queue="q")])

    async def accept(self) -> Callable[[], Awaitable[Any]]:
        jobs = [NewJob(type="a"), NewJob(type="b", lifecycle="orchestration")]
        ids = [created.id for created in await self.engine.create_many(jobs, accept=False)]
        return lambda: self.engine.accept(*ids)

    async def accept_orphans(self) -> Callable[[], Awaitable[Any]]:
        await self.accept()
        self.clock.advance(60)
        return self.engine.maintenance.accept_orphans

    async def claim(self) -> Callable[[], Awaitable[Any]]:
        await self.engine.create_many([NewJob(type=f"type-{n % 2}", priority=n) for n in range(4)])
        return lambda: self.engine.claim(self.worker, limit=9)

    async def claim_what_is_overdue(self) -> Callable[[], Awaitable[Any]]:
        await self.hold("default", "generation")
        await self.engine.create(NewJob(type="late", delay_seconds=5))
        self.clock.advance(60)
        return lambda: self.engine.claim(self.worker, limit=9)

    async def heartbeat(self) -> Callable[[], Awaitable[Any]]:
        leases = await self.hold("default", "crawl")
        self.clock.advance(5)
        return lambda: self.engine.heartbeat(self.worker, [held(lease) for lease in leases])

    async def progress(self) -> Callable[[], Awaitable[Any]]:
        leases = await self.hold("default", "transcode")
        reports = [
            Progress(id=lease.id, token=lease.token, counters={"n": 1}, parts=[Part(name="a"), Part(name="b")])
            for lease in leases
        ]
        return lambda: self.engine.progress_many(self.worker, reports * 2)

    async def complete(self) -> Callable[[], Awaitable[Any]]:
        leases = await self.hold("default", "crawl")
        stale = Complete(leases[0].id, UNKNOWN_ID)
        done = [stale, *(Complete(lease.id, lease.token, {"n": 1}) for lease in leases)]
        return lambda: self.engine.complete_many(self.worker, done)

    async def fail(self) -> Callable[[], Awaitable[Any]]:
        leases = await self.hold("default", "crawl", "orchestration", "default")
        await self.engine.cancel(leases[3].id)
        failures = [
            Fail(id=lease.id, token=lease.token, code="E", permanent=n in (1, 2)) for n, lease in enumerate(leases)
        ]
        return lambda: self.engine.fail_many(self.worker, failures)

    async def release(self) -> Callable[[], Awaitable[Any]]:
        leases = await self.hold("default", "crawl", "default")
        await self.engine.cancel(leases[2].id)
        return lambda: self.engine.release_many(self.worker, [Release(lease.id, lease.token, 5) for lease in leases])

    async def reject(self) -> Callable[[], Awaitable[Any]]:
        leases = await self.hold("default", "generation")
        verdicts = [Rejection(id=lease.id, token=lease.token, code="E") for lease in leases]
        return lambda: self.engine.reject_many(self.worker, verdicts)

    async def reject_queued(self) -> Callable[[], Awaitable[Any]]:
        created = await self.engine.create_many([NewJob(type="a"), NewJob(type="b", lifecycle="generation")])
        return lambda: self.engine.reject_queued(*(Rejection(id=job.id, token="", code="E") for job in created))

    async def cancel_waiting(self) -> Callable[[], Awaitable[Any]]:
        job = await self.engine.create(NewJob(type="a"))
        return lambda: self.engine.cancel(job.id)

    async def cancel_running(self) -> Callable[[], Awaitable[Any]]:
        [lease] = await self.hold("default")
        return lambda: self.engine.cancel(lease.id)

    async def requeue(self) -> Callable[[], Awaitable[Any]]:
        job = await bring(self.engine, self.worker, Lifecycles()["default"], State.RETRYING)
        return lambda: self.engine.requeue(job.id)

    async def requeue_due(self) -> Callable[[], Awaitable[Any]]:
        for name in ("default", "orchestration"):
            await bring(self.engine, self.worker, Lifecycles()[name], State.RETRYING)
        await self.engine.create(NewJob(type="a", delay_seconds=5))
        self.clock.advance(3600)
        return self.engine.maintenance.requeue_due

    async def discard(self) -> Callable[[], Awaitable[Any]]:
        jobs = [await bring(self.engine, self.worker, Lifecycles()["images"], State.RETRYING) for _ in range(2)]
        return lambda: self.engine.discard(*(job.id for job in jobs))

    async def reap(self) -> Callable[[], Awaitable[Any]]:
        for lifecycle in ("default", "orchestration"):
            await run(self.engine, self.worker, instance="here", max_attempts=1, lifecycle=lifecycle)
        to_cancel, _ = await self.hold("default", "crawl")
        await self.engine.cancel(to_cancel.id)
        return lambda: self.engine.maintenance.reap(gone=["here"])

    async def redrive(self) -> Callable[[], Awaitable[Any]]:
        job = await bring(self.engine, self.worker, Lifecycles()["default"], State.DEAD)
        return lambda: self.engine.redrive(job.id, payload={"again": 1})

    async def prune(self) -> Callable[[], Awaitable[Any]]:
        for state in sorted(FINAL):
            await bring(self.engine, self.worker, Lifecycles()["default"], state)
        self.clock.advance(100 * 86_400)
        return lambda: self.engine.maintenance.prune(Retention())


VERB_SCENARIOS = [name for name in vars(VerbScenario) if not name.startswith("_") and name != "hold"]
SEVERAL_TRANSACTIONS = ("claim_what_is_overdue",)  # requeue, reap and claim: three transactions, each whole by itself


@pytest.mark.parametrize("scenario", VERB_SCENARIOS)
async def test_k7_a_crash_between_any_two_statements_leaves_no_partial_write(
    engine: Engine, worker: str, clock: MovableClock, scenario: str
) -> None:
    """K7 (dbos-inc/dbos-transact-py#232, -ts#779): dying between two writes left a status wrong for ever.

    Each verb dies before and after each of its statements in turn. Inside a transaction nothing remains; where a
    statement stands alone it is whole by itself. Then the verb is called again and does its work.
    """
    verb = await getattr(VerbScenario(engine, worker, clock), scenario)()
    store = CrashingStore(engine.store)
    for part in (engine, engine.maintenance):
        part.store = store  # type: ignore[assignment]
    deaths, before = 0, await everything(engine)
    while deaths < 500:
        store.left = deaths
        try:
            await verb()
            break
        except Crash:
            store.left = -1
            deaths += 1
        if scenario not in SEVERAL_TRANSACTIONS and (store.dialect == "sqlite" or not store.alone):
            assert await everything(engine) == before
        await assert_consistent(engine)
        before = await everything(engine)
    store.left = -1
    assert deaths >= 2, "a verb has at least one statement to die before and after"
    assert deaths < 500
    await assert_consistent(engine)


@pytest.fixture
async def crashing_engine(
    fresh_sqlite_url: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Engine]:
    monkeypatch.setattr("holdfast.store.sqlite.SqliteConnection", DyingConnection)
    ids = SeededIds(4)
    engine = Engine(await open_store(fresh_sqlite_url, clock, ids), clock=clock, ids=ids)
    yield engine
    DyingConnection.left = -1
    await engine.close()


@pytest.mark.parametrize("scenario", VERB_SCENARIOS)
async def test_k7_a_crash_inside_an_sqlite_transaction_leaves_no_partial_write(
    crashing_engine: Engine, clock: MovableClock, scenario: str
) -> None:
    """K7: between a move and its history, before the commit itself."""
    worker = (await crashing_engine.workers.register()).id
    verb = await getattr(VerbScenario(crashing_engine, worker, clock), scenario)()
    before = await everything(crashing_engine)
    for deaths in range(500):
        DyingConnection.left = deaths
        with suppress(HoldfastError):
            await verb()
        if DyingConnection.left >= 0:
            break
        if scenario not in SEVERAL_TRANSACTIONS:
            assert await everything(crashing_engine) == before
        await assert_consistent(crashing_engine)
    DyingConnection.left = -1
    assert 3 < deaths < 499
    await assert_consistent(crashing_engine)


class Stopped(BaseException):
    """No error of the database, and no `Exception`."""


def stop() -> None:
    raise Stopped


@pytest.fixture
def direct_engine(crashing_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Every commit counts as quick, and this thread dies."""
    monkeypatch.setattr(direct_connection, "QUICK_SECONDS", 3600.0)
    monkeypatch.setattr(DyingConnection, "thread", threading.current_thread().name)
    return crashing_engine


@pytest.mark.parametrize("job", [NewJob(type="a"), NewJob(type="a", delay_seconds=5, lifecycle="generation")])
@pytest.mark.parametrize("dies_of", [DyingConnection.die, stop])
@pytest.mark.parametrize("rolls_back", [True, False])
async def test_a_crash_inside_a_direct_write_leaves_no_partial_write(
    direct_engine: Engine, monkeypatch: pytest.MonkeyPatch, job: NewJob, dies_of: Callable[[], None], rolls_back: bool
) -> None:
    """A death before BEGIN is none: then the writer thread makes the write."""
    monkeypatch.setattr(DyingConnection, "die", staticmethod(dies_of))
    statements, _ = await statements_of_a_direct_create(direct_engine, job)
    assert statements > 2, "BEGIN, at least one, COMMIT"
    for survived in range(1, statements):
        before = await everything(direct_engine)
        DyingConnection.left = survived
        with monkeypatch.context() as patch:
            patch.setattr(DyingConnection, "rolls_back", rolls_back)
            with pytest.raises((HoldfastError, Stopped)):
                await direct_engine.create(job)
        assert await everything(direct_engine) == before
        await statements_of_a_direct_create(direct_engine, job)
    await assert_consistent(direct_engine)


async def test_a_process_killed_before_the_commit_of_a_direct_write_leaves_no_partial_write(
    fresh_sqlite_url: str,
) -> None:
    command = [sys.executable, "-m", "tests.engine.dying_connection", fresh_sqlite_url]
    child = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, check=False)
    assert child.returncode == -9, child.stderr.decode()
    engine = Engine(await open_store(fresh_sqlite_url))
    try:
        assert len(await ask(engine, "SELECT id FROM holdfast_jobs")) == int(child.stdout)
        await assert_consistent(engine)
        await engine.create(NewJob(type="a"))
    finally:
        await engine.close()
