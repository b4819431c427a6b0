"""What every store promises, on both databases."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import Conflict, HoldfastError, IllegalMove, Invalid, StoreError, StoreUnavailable
from holdfast.ids import Ids
from holdfast.lifecycle import Actor, State
from holdfast.model import NewJob
from holdfast.store import Tx, open_store, q
from holdfast.store.base import Store
from holdfast.store.queries import Query
from tests.store.counting import add_counters, count_up, counted


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Any]:
    store = await open_store(store_url, Clock(), Ids())
    await add_counters(store)
    yield store
    await store.close()


async def test_a_failed_write_is_rolled_back(store: Store) -> None:
    async def fails_late(tx: Tx) -> None:
        await count_up(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.write(fails_late)
    assert await counted(store) == 0
    assert await store.write(count_up) == 1
    assert await counted(store) == 1


async def test_callbacks_run_after_the_commit_and_only_then(store: Store) -> None:
    told: list[str] = []

    async def succeeds(tx: Tx) -> None:
        tx.after_commit(lambda: told.append("done"))
        await count_up(tx)
        assert told == []

    async def fails(tx: Tx) -> None:
        tx.after_commit(lambda: told.append("never"))
        raise ZeroDivisionError

    await store.write(succeeds)
    assert told == ["done"]
    with pytest.raises(ZeroDivisionError):
        await store.write(fails)
    assert told == ["done"]


async def test_a_failing_after_commit_callback_does_not_fail_the_write(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """S14: no caller that shared the commit gets an error for committed work; the error is logged."""

    async def work(tx: Tx) -> Any:
        tx.after_commit(lambda: 1 // 0)
        return await count_up(tx)

    writes = asyncio.gather(*(store.write(work) for _ in range(5)))
    assert sorted(await asyncio.wait_for(writes, 60)) == [1, 2, 3, 4, 5]
    assert "ZeroDivisionError" in caplog.text


async def test_concurrent_writes_all_succeed(store: Store) -> None:
    assert sorted(await asyncio.gather(*(store.write(count_up) for _ in range(50)))) == list(range(1, 51))


REFUSED: list[tuple[str, type[HoldfastError], str]] = [
    (
        "UPDATE holdfast_jobs SET state = 'succeeded', due = NULL, finished_at = {now}, moved_by = 'worker'",
        IllegalMove,
        "illegal_move",
    ),
    ("UPDATE holdfast_jobs SET epoch = 7", IllegalMove, "illegal_move"),
    ("DELETE FROM holdfast_jobs", IllegalMove, "illegal_move"),
    ("UPDATE holdfast_events SET reason = 'rewritten'", Conflict, "append_only"),
    ("UPDATE holdfast_events SET actor = 'stranger'", Conflict, "append_only"),
    ("UPDATE holdfast_jobs SET priority = 101", StoreError, "constraint_violated"),
    ("INSERT INTO holdfast_queues (tenant, name) VALUES (NULL, 'x')", StoreError, "constraint_violated"),
    (
        "UPDATE holdfast_jobs SET state = 'canceled', due = NULL, finished_at = {now}, moved_by = 'worker'",
        IllegalMove,
        "actor_not_allowed",
    ),
    ("UPDATE holdfast_jobs SET moved_by = 'stranger'", StoreError, "constraint_violated"),
]


@pytest.mark.parametrize(("sql", "error", "code"), REFUSED, ids=range(len(REFUSED)))
async def test_database_errors_are_mapped_to_our_errors(
    engine: Engine, sql: str, error: type[HoldfastError], code: str
) -> None:
    """S5."""
    job = await engine.create(NewJob(type="echo"))
    column = sql.split()[1] if sql.startswith("UPDATE") else None
    returning = "id" if column == "jobs" or sql.startswith("DELETE") else "tenant"
    with pytest.raises(error) as caught:
        await engine.store.write(lambda tx: tx.all(Query("by_hand", f"{sql} RETURNING {returning}")))
    assert caught.value.code == code
    assert (await engine.reads.get(job.id)).state is State.QUEUED


async def test_a_move_by_an_illegal_actor_is_refused_and_rolled_back(engine: Engine) -> None:
    """C-8: the event is refused, so the row does not move either."""
    job = await engine.create(NewJob(type="echo"))
    worker = (await engine.workers.register(name="w")).id
    [held] = await engine.claim(worker)
    rows = [(held.id, held.token, None)]
    with pytest.raises(IllegalMove) as caught:
        await engine.store.write(lambda tx: tx.all(q.complete_jobs, actor=Actor.API.value, done=rows, worker=worker))
    assert caught.value.code == "actor_not_allowed"
    assert (await engine.reads.get(job.id)).state is State.RUNNING
    assert [event.verb for event in await engine.reads.history(job.id)] == ["create", "claim"]


BAD: list[dict[str, Any]] = [
    {"payload": {"x": float("nan")}},
    {"payload": {"x": "x" * 300_000}},
    {"payload": {"x": {1, 2}}, "idempotency_key": "k"},
    {"trace": {"x": "\ud800"}},
    {"queue": "bell\x07"},
    {"lifecycle": "crawler"},
    {"policy": {"lease_seconds": 0}},
    {"policy": {"lease_secs": 5}},
    {"requires": [""]},
    {"max_attempts": 0},
    {"delay_seconds": -1},
    {"parent_id": "me"},
]


@pytest.mark.parametrize("fields", BAD, ids=range(len(BAD)))
async def test_a_bad_request_writes_nothing_at_all(engine: Engine, fields: dict[str, Any]) -> None:
    """The same typed error on both stores; not even a lane or a policy is left behind."""
    with pytest.raises(Invalid):
        await engine.create(NewJob(**{"type": "echo", **fields}))
    for table in ("jobs", "events", "lanes", "policies"):
        count = Query(f"count_{table}", f"SELECT count(*) AS n FROM holdfast_{table}")
        row = await engine.store.read(lambda tx, count=count: tx.one(count))
        assert row is not None
        assert row["n"] == 0, table


async def test_a_closed_store_raises_store_unavailable(store: Store) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(store.write(count_up), 60)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(store.read(lambda tx: tx.all(q.clock)), 60)
