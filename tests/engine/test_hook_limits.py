"""Hooks that roll back, exceed their time, await something else or block."""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from holdfast.engine import Complete, Engine
from holdfast.errors import HookFailed, OutcomeUnknown, StoreUnavailable
from holdfast.lifecycle import State
from holdfast.model import Job, NewJob
from holdfast.model.reports import Settled
from holdfast.store import Tx, open_store, postgres
from holdfast.store.queries import Query
from tests.engine.failing_hooks import (
    BAD,
    follow_nothing,
    states,
    takes_too_long,
    ten_leases,
)
from tests.engine.hooking import effect
from tests.engine.steps import ask, run


@pytest.mark.sqlite
async def test_a_hook_that_rolls_back_the_sqlite_transaction_moves_no_job(fresh_sqlite_url: str) -> None:
    """As a full disk does: the savepoints are gone with the transaction, and nothing may be committed after it."""
    engine = Engine(await open_store(fresh_sqlite_url))
    worker = (await engine.workers.register(name="w")).id

    @effect(engine, "complete")
    async def follow(tx: Tx, _verb: str, job: Job) -> None:
        if job.payload["n"] == BAD:
            await tx.all(Query("undo", "ROLLBACK"))

    leases = await ten_leases(engine, worker)
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases])
    assert await states(engine) == {"running": 10}
    await engine.close()


@pytest.mark.postgres
async def test_a_batch_with_an_unconfirmed_commit_is_not_retried(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run would report the moved jobs as done, although a failover may lose them."""
    engine = Engine(await open_store(fresh_postgres_url))
    worker = (await engine.workers.register(name="w")).id
    effect(engine, "complete")(follow_nothing)
    leases = await ten_leases(engine, worker)
    unconfirmed = [OutcomeUnknown("the standby did not confirm it")]

    def require_replication(_connection: Any) -> None:
        if unconfirmed:
            raise unconfirmed.pop()

    monkeypatch.setattr(postgres, "require_replication", require_replication)
    with pytest.raises(OutcomeUnknown):
        await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases])
    await engine.close()


async def test_a_hook_that_exceeds_its_time_while_writing_rolls_back_only_its_own_job(
    engine: Engine, worker: str
) -> None:
    """SQLite would undo the work of all others with a write that it interrupts."""
    engine.ctx.limits = replace(engine.ctx.limits, hook_seconds=0.2)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) SELECT max(i) FROM n"
    write = Query("write", f"INSERT INTO holdfast_secrets (name, value) VALUES (:name, ({numbers})) RETURNING name")

    @effect(engine, "complete", job_type="n")
    async def follow(tx: Tx, _verb: str, job: Job) -> None:
        for n in range(100_000 if job.payload["n"] == BAD else 0):
            await tx.all(write, name=f"{n}")

    await engine.create_many([NewJob(type="n", payload={"n": n}) for n in (BAD - 1, BAD)])
    leases = await engine.claim(worker, limit=2)
    reports = [Complete(lease.id, lease.token) for lease in leases]
    answers, created = await asyncio.gather(engine.complete_many(worker, reports), engine.create(NewJob(type="plain")))
    assert [type(answer) for answer in answers] == [Settled, HookFailed]
    assert await ask(engine, "SELECT name FROM holdfast_secrets") == []
    assert (await engine.reads.get(created.id)).state is State.QUEUED


async def test_a_batch_stops_calling_hooks_after_two_of_them_timed_out(engine: Engine, worker: str) -> None:
    engine.ctx.limits = replace(engine.ctx.limits, hook_seconds=0.2)
    called: list[str] = []

    @effect(engine, "complete", "claim", job_type="n")
    async def follow(tx: Tx, verb: str, _job: Job) -> None:
        called.append(verb)
        if verb == locked:
            await takes_too_long(tx)

    locked = "complete"
    leases = await ten_leases(engine, worker)
    called.clear()
    answers = await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases])
    assert all(isinstance(answer, HookFailed) for answer in answers)
    assert 2 <= len(called) <= 4, "the others were left for another call"
    locked = "claim"
    await engine.create_many([NewJob(type="n") for _ in range(10)])
    called.clear()
    assert await engine.claim(worker) == []
    assert 2 <= len(called) <= 4


async def awaits_something_else(_tx: Tx) -> None:
    await asyncio.sleep(0.001)


async def awaits_another_task(_tx: Tx) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("wait", [awaits_something_else, awaits_another_task])
async def test_a_hook_that_awaits_something_else_fails_and_is_named(
    engine: Engine, worker: str, wait: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @effect(engine, "complete")
    async def follow(tx: Tx, _verb: str, _job: Job) -> None:
        await wait(tx)

    lease = await run(engine, worker, type="n")
    with caplog.at_level(logging.WARNING, "holdfast.hooks"), pytest.raises(HookFailed, match="toy"):
        await engine.complete(worker, lease.id, lease.token)
    [record] = caplog.records
    assert "toy: test_a_hook_that_awaits_something_else" in record.message
    assert "may only await that transaction" in record.message


async def test_a_hook_that_blocks_is_named(engine: Engine, worker: str, caplog: pytest.LogCaptureFixture) -> None:
    @effect(engine, "complete")
    async def follow(_tx: Tx, _verb: str, _job: Job) -> None:
        time.sleep(1.1)  # noqa: ASYNC251  the hook under test blocks

    lease = await run(engine, worker, type="n")
    with caplog.at_level(logging.WARNING, "holdfast.hooks"):
        await engine.complete(worker, lease.id, lease.token)
    [record] = caplog.records
    assert "toy: test_a_hook_that_blocks_is_named" in record.message
    assert "blocked the event loop" in record.message
