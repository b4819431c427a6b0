"""The PostgreSQL store under faults: safe operations are retried, uncertain ones raise OutcomeUnknown."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from holdfast.clock import EPOCH, Clock, MovableClock
from holdfast.engine import Engine
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.store import PostgresStore, Tx, postgres, q
from holdfast.store.connect import session_settings
from holdfast.store.migrate import migrate
from holdfast.store.postgres import bind
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES, render
from tests.servers.postgres import running
from tests.servers.proxy import Proxy
from tests.store.cancel_at import CancelAt
from tests.store.counting import SET_SLOTS, add_counters, count_up, counted, counter_id
from tests.store.open_transactions import assert_none_is_left_open

before_or_after = pytest.mark.parametrize("after", [False, True], ids=["unheard", "heard"])


async def configure(postgres: Any, setting: str, value: str) -> None:
    """For every later session of this database."""
    database = await postgres.fetchval("SELECT current_database()")
    await postgres.execute(f"ALTER DATABASE {database} SET {setting} = '{value}'")


@pytest.fixture
async def store(fresh_postgres_url: str, postgres: Any) -> AsyncIterator[PostgresStore]:
    await configure(postgres, "deadlock_timeout", "10ms")
    store = await PostgresStore.open(fresh_postgres_url, Clock(), Ids())
    await add_counters(store, 1, 2)
    yield store
    await store.close()


@pytest.fixture
async def proxy(fresh_postgres_url: str) -> AsyncIterator[Proxy]:
    async with Proxy.to(fresh_postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def proxied_store(proxy: Proxy, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """A second store on the same database, behind a proxy that can disconnect."""
    proxied_store = await PostgresStore.open(proxy.url, Clock(), Ids())
    yield proxied_store
    await proxied_store.close()


async def test_two_writers_in_a_deadlock_both_succeed(store: PostgresStore) -> None:
    """F22, K36, R003-157: a deadlock is retried without an error for the caller."""
    both_hold_one, tries = asyncio.Barrier(2), Counter[int]()

    async def cross(first: int, second: int) -> None:
        async def work(tx: Tx) -> None:
            tries[first] += 1
            await count_up(tx, first)
            if tries[first] == 1:
                await both_hold_one.wait()
            await count_up(tx, second)

        await store.write(work)

    await asyncio.gather(cross(1, 2), cross(2, 1))
    assert tries.total() == 3, "one of them was the victim, once"
    assert [await counted(store, number) for number in (1, 2)] == [2, 2]


async def test_two_writers_in_a_serialization_conflict_both_succeed(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22: a serialization failure is retried, and no update is lost."""
    settings = [*session_settings(), "default_transaction_isolation = 'serializable'"]
    monkeypatch.setattr("holdfast.store.postgres.session_settings", lambda: settings)
    store = await PostgresStore.open(fresh_postgres_url, Clock(), Ids())
    await add_counters(store)
    both_have_read, tries = asyncio.Barrier(2), Counter[str]()

    def writer(name: str) -> Callable[[Tx], Coroutine[Any, Any, None]]:
        async def work(tx: Tx) -> None:
            tries[name] += 1
            row = await tx.one(q.worker, id=counter_id())
            assert row is not None
            if tries[name] == 1:
                await both_have_read.wait()
            await tx.one(SET_SLOTS, id=counter_id(), slots=row["slots"] + 1)

        return work

    try:
        await asyncio.gather(store.write(writer("a")), store.write(writer("b")))
        assert await counted(store) == 2
        assert tries.total() >= 3
    finally:
        await store.close()


async def test_a_connection_lost_before_the_commit_is_retried_and_takes_effect_once(
    proxy: Proxy, proxied_store: PostgresStore
) -> None:
    """S14: nothing was committed, so running the work again is safe."""
    tries: list[int] = []

    async def work(tx: Tx) -> Any:
        tries.append(1)
        slots = await count_up(tx)
        if len(tries) == 1:
            proxy.cut()
        await count_up(tx, 2)
        return slots

    assert await proxied_store.write(work) == 1
    assert (len(tries), proxy.cuts) == (2, 1)
    assert [await counted(proxied_store, number) for number in (1, 2)] == [1, 1]


async def test_a_read_that_loses_its_connection_is_repeated(proxy: Proxy, proxied_store: PostgresStore) -> None:
    assert await counted(proxied_store) == 0
    proxy.cut_at(counter_id().encode(), after=True)
    assert await counted(proxied_store) == 0
    assert proxy.cuts == 1


@before_or_after
async def test_a_lost_answer_to_a_commit_raises_outcome_unknown(
    proxy: Proxy, proxied_store: PostgresStore, store: PostgresStore, after: bool
) -> None:
    """S14, F6: whether the server got the COMMIT or not, the caller learns that the outcome is unknown."""
    told: list[str] = []

    async def work(tx: Tx) -> None:
        tx.after_commit(lambda: told.append("committed"))
        await count_up(tx)

    proxy.cut_at(b"COMMIT", after=after)
    with pytest.raises(OutcomeUnknown, match="it may have happened: repeat the request") as caught:
        await proxied_store.write(work)
    assert caught.value.code == "outcome_unknown"
    assert (proxy.cuts, told) == (1, [])
    assert await counted(store) == (1 if after else 0)

    await proxied_store.write(work)
    assert await counted(store) == (2 if after else 1)


@before_or_after
async def test_a_lost_answer_to_a_create_raises_outcome_unknown_and_a_repeat_finds_the_job(
    proxy: Proxy, proxied_store: PostgresStore, store: PostgresStore, after: bool
) -> None:
    """S2, S14, F6, R001-43: the create that was not answered is repeated with its key; there is one job."""
    job = NewJob(type="echo", payload={"mark": "cut-the-wire-here"}, idempotency_key="once")
    far_engine, engine = Engine(proxied_store), Engine(store)
    await far_engine.create(NewJob(type="echo"))
    proxy.cut_at(b"cut-the-wire-here", after=after)
    with pytest.raises(OutcomeUnknown):
        await far_engine.create(job)
    assert proxy.cuts == 1
    assert (await engine.create(job)).existed is after
    assert sum(number for *_, number in await engine.reads.counts()) == 2


@before_or_after
async def test_a_repeated_complete_returns_the_lost_answer(
    proxy: Proxy, proxied_store: PostgresStore, store: PostgresStore, after: bool
) -> None:
    """S14, K7: complete is one statement; repeated with the same token it is answered alike."""
    engine, far_engine = Engine(store), Engine(proxied_store)
    job = await engine.create(NewJob(type="echo"))
    worker = (await engine.workers.register(name="w")).id
    [held] = await far_engine.claim(worker)
    proxy.cut_at(b"cut-the-wire-here", after=after)
    with pytest.raises(OutcomeUnknown):
        await far_engine.complete(worker, held.id, held.token, {"mark": "cut-the-wire-here"})
    settled = await far_engine.complete(worker, held.id, held.token, {"mark": "cut-the-wire-here"})
    assert settled.state == "succeeded"
    assert [event.verb for event in await engine.reads.history(job.id)].count("complete") == 1
    assert len(await engine.reads.attempts(job.id)) == 1


async def test_work_with_its_own_commits_is_not_retried_after_the_first_commit(
    proxy: Proxy, proxied_store: PostgresStore, store: PostgresStore
) -> None:
    """S14: a claim takes from several lanes, each by a statement of its own; a second run would forget the first."""

    async def work(tx: Tx) -> None:
        await count_up(tx)
        if await counted(store) == 1:
            await proxy.cut_and_seen()
        await count_up(tx, 2)

    with pytest.raises(OutcomeUnknown):
        await proxied_store.write(work, alone=True)
    assert await counted(store) == 1


async def test_terminated_connections_are_replaced(store: PostgresStore, postgres: Any) -> None:
    """F5, L5: idle connections of the pool are terminated, and later callers see no error."""
    for round_ in range(1, 11):
        await asyncio.gather(*(store.write(count_up) for _ in range(5)))
        assert await counted(store) == 5 * round_
        ended = await postgres.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert ended >= 1


async def test_a_stopped_server_raises_store_unavailable_until_its_restart() -> None:
    """L5, F4, R001-75: no process of ours needs a restart, and what was committed is there."""
    with running() as server:
        await migrate(server.dsn())
        store = await PostgresStore.open(server.dsn(), Clock(), Ids())
        await add_counters(store)
        await store.write(count_up)
        await asyncio.to_thread(server.stop)
        for attempt in (store.write(count_up), store.write(count_up, alone=True), counted(store)):
            with pytest.raises(StoreUnavailable, match="nothing was written") as caught:
                await attempt
            assert caught.value.code == "store_unavailable"
        await asyncio.to_thread(server.start)
        assert await store.write(count_up) == 2
        await store.close()


@pytest.mark.parametrize("again", [0, 1, 2])
async def test_a_caller_that_is_cancelled_at_any_await_leaves_no_open_transaction(
    fresh_postgres_url: str, postgres: Any, again: int
) -> None:
    """F42, K37: with one connection in the pool, the next caller finds it clean; the write is complete or absent."""
    store = await PostgresStore.open(fresh_postgres_url, Clock(), Ids(), connections=1)
    await add_counters(store, 1, 2)

    async def work(tx: Tx) -> None:
        await count_up(tx, 1)
        await count_up(tx, 2)

    cancelled = 0
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    try:
        for pause in range(1, 100):
            attempt = CancelAt(store.write(work), pause, again=again)

            async def run(attempt: CancelAt = attempt) -> None:
                await attempt

            task = asyncio.create_task(run())
            await asyncio.wait([task])
            assert not task.cancelled() or attempt.reached
            cancelled += task.cancelled()
            one, two = await asyncio.gather(counted(store, 1), counted(store, 2))
            assert one == two, f"half a write after a cancel at pause {pause}"
            await assert_none_is_left_open(postgres)
            if not attempt.reached:
                break
        assert cancelled >= 4, "BEGIN, two statements and COMMIT wait at least once each"
        assert not attempt.reached
        assert complaints == []
    finally:
        await store.close()


async def test_a_rollback_without_an_answer_terminates_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that cancels a hanging write must not hang; the connection is terminated with its transaction."""
    monkeypatch.setattr(postgres, "ROLLBACK_SECONDS", 0.01)

    class Frozen:
        terminated = False

        def is_closed(self) -> bool:
            return False

        async def execute(self, statement: str) -> None:
            await asyncio.Event().wait()

        def terminate(self) -> None:
            self.terminated = True

    connection = Frozen()
    async with asyncio.timeout(60):
        await postgres._roll_back(connection)
    assert connection.terminated


async def test_the_store_disables_jit(fresh_postgres_url: str) -> None:
    """JIT compilation of a plan with a sequential scan took two seconds per claim."""
    store = await PostgresStore.open(fresh_postgres_url, Clock(), Ids())
    try:
        [row] = await store.read(lambda tx: tx.all(Query("jit", "SELECT current_setting('jit') AS jit")))
        assert row["jit"] == "off"
    finally:
        await store.close()


def test_the_arguments_of_a_single_row_are_those_of_its_columns_in_order() -> None:
    """Neighboring columns are taken together."""
    query = q.insert_jobs.minimal.for_one
    statement = render(query, POSTGRES)
    width = {table: 1 + max(place or 0 for name, place in statement.places if name == table) for table in query.tables}
    rows = {table: [tuple(f"{table}.{place}" for place in range(wide))] for table, wide in width.items()}
    other = {name: name for name, place in statement.places if place is None}
    bound = bind(query, statement, {**rows, **other}, MovableClock(EPOCH))
    shown = [name if place is None else f"{name}.{place}" for name, place in statement.places]
    assert bound == [EPOCH if name == "now" else name for name in shown]
