"""Regressions: defects that show only under a rare order of events."""

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, HookFailed, KeyReused, LeaseLost, StoreUnavailable
from holdfast.lifecycle import State
from holdfast.model import JobType, NewJob
from holdfast.store import Row, Tx, open_store
from holdfast.store.migrate import sqlite_path
from holdfast.store.queries import Query
from tests.engine.hooking import effect


async def test_an_idempotency_key_lasts_as_long_as_the_policy_of_the_job_that_holds_it(
    engine: Engine, clock: MovableClock
) -> None:
    """C-18: a request with a more generous policy cannot take a key that was given for ever."""
    mine = NewJob(type="pay", idempotency_key="order-1")
    first = await engine.create(mine)
    clock.advance(2 * 86_400)
    with pytest.raises(KeyReused):
        await engine.create(NewJob(type="crawl", lifecycle="crawl", idempotency_key="order-1"))
    assert (await engine.create(mine)).id == first.id


async def test_a_repeated_create_accepts_the_job_left_unaccepted_by_the_first(engine: Engine) -> None:
    """C-9, R001-25, R001-43."""
    request = NewJob(type="n", lifecycle="orchestration", idempotency_key="k")
    held = await engine.create(request, accept=False)
    assert held.state is State.CREATED
    again = await engine.create(request)
    assert (again.id, again.state, again.existed) == (held.id, State.QUEUED, True)
    assert [event.verb for event in await engine.reads.history(held.id)] == ["create", "accept"]


async def test_a_concurrent_create_does_not_restore_an_old_declaration_in_the_registry(engine: Engine) -> None:
    await engine.job_types.declare(JobType(name="n", queue="old"))

    async def create_while_another_declares(tx: Tx) -> None:
        await engine.ctx.registry.resolve(tx, [NewJob(type="n")])
        engine.ctx.registry._types = {"n": JobType(name="n", queue="new")}
        engine.ctx.registry._resolved = {}

    await engine.store.write(create_while_another_declares)
    job = await engine.create(NewJob(type="n"))
    assert (await engine.reads.get(job.id)).queue == "new"


@pytest.mark.parametrize(
    ("first", "again", "same"), [([1, 2], (1, 2), True), ({"a": 1}, {"a": True}, False), (None, None, True)]
)
async def test_a_repeated_result_is_compared_as_it_was_stored(
    engine: Engine, worker: str, first: Any, again: Any, same: bool
) -> None:
    await engine.create(NewJob(type="n"))
    [lease] = await engine.claim(worker)
    await engine.complete(worker, lease.id, lease.token, first)
    if same:
        assert (await engine.complete(worker, lease.id, lease.token, again)).state is State.SUCCEEDED
    else:
        with pytest.raises(LeaseLost):
            await engine.complete(worker, lease.id, lease.token, again)


async def test_a_claim_returns_committed_leases_when_a_later_statement_fails(
    engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite the whole claim rolls back and is empty; on PostgreSQL what was committed is answered."""
    await engine.create_many([NewJob(type="a"), NewJob(type="b")])
    taken = 0
    tx_class = engine.store.transaction_class
    original = tx_class.all

    async def failing(self: Any, query: Any, **params: Any) -> list[Row]:
        nonlocal taken
        if query.name == "claim_jobs":
            taken += 1
            if taken == 2:
                raise StoreUnavailable("the second lane is gone")
        rows: list[Row] = await original(self, query, **params)
        return rows

    monkeypatch.setattr(tx_class, "all", failing)
    try:
        leases = await engine.claim(worker, limit=2)
    except HoldfastError:
        leases = []
    monkeypatch.undo()
    running = [job for job in (await engine.reads.page()).jobs if job.state is State.RUNNING]
    assert sorted(job.id for job in running) == sorted(lease.id for lease in leases)


async def test_a_claim_does_not_defer_to_a_worker_of_another_tenant(engine: Engine, worker: str) -> None:
    """C-33: it is not capable of this job."""
    gpu = await engine.workers.register(capabilities={"gpu": True}, tenants=["elsewhere"])
    await engine.heartbeat(gpu.id, [])
    await engine.create(NewJob(type="n", prefers=["gpu"]))
    assert len(await engine.claim(worker)) == 1


@pytest.mark.postgres
async def test_a_hook_that_swallows_a_database_error_does_not_commit(fresh_postgres_url: str) -> None:
    """S14: PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and no error."""
    engine = Engine(await open_store(fresh_postgres_url))

    @effect(engine, "create", job_type="n")
    async def careless(tx: Tx, _verb: str, _row: Row) -> None:
        with suppress(Exception):
            await tx.all(Query("broken", "SELECT 1 / (:zero - :zero)::integer"), zero=0)

    with pytest.raises(HookFailed):
        await engine.create(NewJob(type="n"))
    found = (await engine.reads.page()).jobs
    await engine.close()
    assert found == []


@pytest.mark.sqlite
async def test_a_callers_sqlite_transaction_waits_for_a_busy_writer(fresh_sqlite_url: str) -> None:
    """Reading first and then writing would fail whenever another writer commits in between."""
    engine = Engine(await open_store(fresh_sqlite_url))
    stop = threading.Event()

    async def busy() -> None:
        while not stop.is_set():
            await engine.create(NewJob(type="busy"))

    def borrow() -> None:
        async def work() -> None:
            other = Engine(await open_store(fresh_sqlite_url))
            with closing(sqlite3.connect(sqlite_path(fresh_sqlite_url), timeout=30)) as connection:
                for _ in range(30):
                    await other.create(NewJob(type="borrowed"), connection=connection)
                    connection.commit()
            await other.close()

        asyncio.run(work())

    writing = asyncio.create_task(busy())
    await asyncio.to_thread(borrow)
    stop.set()
    await writing
    counts = {kind: number for _, kind, _, number in await engine.reads.counts()}
    await engine.close()
    assert counts["borrowed"] == 30
