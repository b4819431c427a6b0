"""Callers and workers that are cancelled at any await: no connection leaks, none goes back with an open transaction."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from holdfast import App
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.lifecycle import State
from holdfast.model.reports import Release
from holdfast.sdk.definitions import Definition
from holdfast.settings import Settings
from holdfast.store import PostgresStore
from holdfast.store.presence import open_presence
from holdfast.worker.sources.database import DatabaseSource
from tests.store.cancel_at import CancelAt
from tests.store.open_transactions import assert_none_is_left_open
from tests.worker.real_processes.harness import eventually

PAUSES_MAX = 200


@pytest.fixture
async def quick(store_url: str) -> AsyncIterator[Definition[[], None]]:
    app = App(Settings(database_url=store_url))

    @app.job()
    async def quick() -> None: ...

    yield quick
    await app.close()


@pytest.fixture
async def engine(quick: Definition[[], None]) -> Engine:
    return await quick._app.engine()


async def cancelled_at_each(work: Callable[[int], Coroutine[Any, Any, Any]]) -> AsyncIterator[int]:
    """Runs it again and again, cancelled one await later each time, until it gets through; says how often it was."""
    for pause in range(1, PAUSES_MAX):
        attempt = CancelAt(work(pause), pause)

        async def run(attempt: CancelAt = attempt) -> None:
            await attempt

        task = asyncio.create_task(run())
        await asyncio.wait([task])
        if not attempt.reached:
            task.result()
            return
        yield pause
    pytest.fail(f"not finished after {PAUSES_MAX} awaits")


async def assert_nothing_left_open(engine: Engine, url: str) -> None:
    if isinstance(engine.store, PostgresStore):
        connections = engine.store._connections
        await eventually(lambda: len(connections._all) == len(connections._idle))  # hints may be under way
        looking = await asyncpg.connect(url)
        await assert_none_is_left_open(looking)
        await looking.close()
    await engine.queues.pause("any queue")  # it can write
    await engine.queues.resume("any queue")


@pytest.mark.parametrize("way", ["alone", "with a key", "many"])
async def test_a_caller_cancelled_during_enqueue_leaves_no_open_transaction(
    quick: Definition[[], None], engine: Engine, store_url: str, way: str
) -> None:
    """F42, K37: each job is there or not, and no caller after it notices."""

    async def enqueue(number: int) -> None:
        if way == "alone":
            await quick.enqueue()
        elif way == "with a key":
            await quick.options(idempotency_key=f"key-{number}").enqueue()
        else:
            await quick.enqueue_many([{}] * 1500)

    cancelled = 0
    async for number in cancelled_at_each(enqueue):
        cancelled += 1
        await enqueue(number)  # as a caller would that got no answer; with the same key it is the same job
        await assert_nothing_left_open(engine, store_url)
    there = sum(number for *_, number in await engine.reads.counts())
    assert cancelled >= 1
    if way == "with a key":
        assert there == cancelled + 1
    else:
        size = 1500 if way == "many" else 1
        assert there % size == 0, "half of a call was written"
        assert cancelled + 1 <= there // size <= 2 * cancelled + 1


async def test_a_worker_cancelled_during_a_claim_can_read_its_leases(
    quick: Definition[[], None], engine: Engine, store_url: str
) -> None:
    await quick.enqueue_many([{}] * 20)
    presence = await open_presence(store_url)
    worker = (await engine.workers.register(name="cancelled")).id
    source = DatabaseSource(engine, presence, Clock(), worker=worker)

    async def claim(_: int) -> None:
        await source.claim(5, queues=None, types=None)

    cancelled = unheard = 0
    async for _ in cancelled_at_each(claim):
        cancelled += 1
        await assert_nothing_left_open(engine, store_url)
        await eventually(lambda: worker_knows_all_leases(source))
        held = await source.held()
        unheard += bool(held)
        if held:
            await source.settle([Release(one.id, one.token) for one in held])
    print(f"cancelled {cancelled} times, {unheard} of them after the claim had been made")
    assert cancelled >= 1
    await presence.close()


async def worker_knows_all_leases(source: DatabaseSource) -> bool:
    """The worker can read every lease it holds; the server may take a moment to end a canceled statement."""
    held, counts = await source.held(), await source.engine.reads.counts()
    return sum(number for *_, state, number in counts if state is State.RUNNING) == len(held)


@pytest.mark.postgres
async def test_a_caller_cancelled_during_enqueue_keeps_its_own_transaction(fresh_postgres_url: str) -> None:
    """The caller catches the cancellation and commits: no job exists without the caller's own row."""
    caller = await asyncpg.connect(fresh_postgres_url)
    await caller.execute("CREATE TABLE orders (number int)")
    async with App(Settings(database_url=fresh_postgres_url)) as app:

        @app.job()
        async def quick(order: int) -> None: ...

        async def enqueue(number: int) -> None:
            await quick.options(connection=caller).enqueue(number)

        engine = await app.engine()
        cancelled = 0
        await begin_order(caller, 1)
        async for number in cancelled_at_each(enqueue):
            assert caller.is_in_transaction()
            await caller.execute("COMMIT")
            cancelled = number
            await begin_order(caller, number + 1)
        await caller.execute("COMMIT")
        orders = {row["number"] for row in await caller.fetch("SELECT number FROM orders")}
        made = [job.payload["order"] for job in (await engine.reads.page()).jobs]
        print(f"cancelled {cancelled} times; {len(made)} jobs for {len(orders)} orders")
        assert set(made) <= orders
        assert len(made) == len(set(made))
        assert cancelled + 1 in made
    await caller.close()


async def begin_order(caller: Any, number: int) -> None:
    await caller.execute("BEGIN")
    await caller.execute("INSERT INTO orders VALUES ($1)", number)
