"""Group commit: callers in one process share commits; errors and cancellations of one do not affect others."""

import asyncio
from typing import Any

import asyncpg
import pytest

from holdfast import App
from holdfast.batching import Batcher
from holdfast.errors import HoldfastError, Invalid, StoreUnavailable
from holdfast.sdk.definitions import Definition
from tests.app.steps import jobs_in
from tests.engine.steps import ask
from tests.store.open_transactions import assert_none_is_left_open
from tests.worker.in_process import until


@pytest.fixture
def number(app: App) -> Definition[[int], int]:
    @app.job()
    async def number(n: int) -> int:
        return n

    return number


async def writes_during(app: App, work: Any) -> int:
    """How often the store was asked to commit."""
    store = (await app.engine()).store
    count, write = 0, store.write

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        return await write(*args, **options)

    store.write = counted  # type: ignore[method-assign]
    try:
        await work
    finally:
        store.write = write  # type: ignore[method-assign]
    return count


class TestEnqueue:
    async def test_concurrent_callers_share_commits(self, app: App, number: Definition[[int], int]) -> None:
        await number.enqueue(0)
        jobs: list[Any] = []

        async def crowd() -> None:
            jobs.extend(await asyncio.gather(*(number.enqueue(n) for n in range(400))))

        assert await writes_during(app, crowd()) <= 10
        assert [(await job.get()).payload["n"] for job in jobs[::40]] == list(range(0, 400, 40))
        assert await jobs_in(app) == 401

    async def test_a_single_caller_does_not_wait_for_a_batch(self, app: App, number: Definition[[int], int]) -> None:
        await number.enqueue(0)

        async def one_by_one() -> None:
            for n in range(5):
                await number.enqueue(n)

        assert await writes_during(app, one_by_one()) <= 10  # each its own, and on PostgreSQL a word to the workers

    @pytest.mark.postgres
    async def test_the_database_sees_few_transactions(self, fresh_postgres_url: str) -> None:
        async with App(database_url=fresh_postgres_url) as app:

            @app.job()
            async def number(n: int) -> None: ...

            await asyncio.gather(*(number.enqueue(n) for n in range(400)))
            [row] = await ask(await app.engine(), "SELECT count(DISTINCT pos) AS commits FROM holdfast_events")
            assert row["commits"] <= 10

    async def test_an_invalid_request_in_a_batch_fails_only_its_own_caller(
        self, app: App, number: Definition[[int], int]
    ) -> None:
        """An error that only the engine can find, in the middle of a batch."""
        calls = [number.options(queue="\n" if n in (3, 77) else "q").enqueue(n) for n in range(100)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        wrong = {place for place, answer in enumerate(answers) if isinstance(answer, Invalid)}
        assert wrong == {3, 77}
        assert await jobs_in(app) == 98

    async def test_a_cancelled_caller_does_not_affect_others_in_its_batch(
        self, app: App, number: Definition[[int], int]
    ) -> None:
        """F42, K37: at any await, the others get their jobs, once, and the store continues."""
        await number.enqueue(-1)
        expected = {-1}
        for turns in range(12):
            tasks = [asyncio.create_task(number.enqueue(20 * turns + n)) for n in range(20)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for answer in answers:
                assert not isinstance(answer, Exception), answer
                if not isinstance(answer, BaseException):
                    expected.add((await answer.get()).payload["n"])
        page = await (await app.engine()).reads.page(limit=500)
        stored = [job.payload["n"] for job in page.jobs]
        assert len(stored) == len(set(stored))
        assert expected <= set(stored)
        assert {20 * turns + n for turns in range(12) for n in range(1, 20, 2)} <= expected
        assert (await (await number.enqueue(999)).get()).payload == {"n": 999}

    @pytest.mark.postgres
    async def test_a_cancelled_caller_leaks_no_connection_and_no_open_transaction(
        self, fresh_postgres_url: str
    ) -> None:
        """K37: the pool has ten connections, and each is usable afterwards."""
        async with App(database_url=fresh_postgres_url) as app:

            @app.job()
            async def number(n: int) -> None: ...

            await number.enqueue(0)
            for turns in range(40):
                keyed = number.options(idempotency_key=f"k{turns}")  # these have a transaction of their own
                tasks = [asyncio.create_task(job.enqueue(turns)) for job in (number, keyed, keyed)]
                for _ in range(turns % 14):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            async with asyncio.timeout(60):
                keyed_jobs = [number.options(idempotency_key=f"a{n}").enqueue(n) for n in range(30)]
                assert len({job.id for job in await asyncio.gather(*keyed_jobs)}) == 30
            pool = (await app.engine()).store._connections  # type: ignore[attr-defined]
            await until(lambda: len(pool._idle) == len(pool._all))
            assert len(pool._all) <= 10, "every connection went back to the pool"
            looking = await asyncpg.connect(fresh_postgres_url)
            await assert_none_is_left_open(looking)
            await looking.close()


class TestBatches:
    """The batcher alone, with a fake send function."""

    async def test_items_that_arrive_during_a_batch_go_into_the_next_one(self) -> None:
        sent: list[list[int]] = []
        gate = asyncio.Event()

        async def send(items: list[int]) -> list[int]:
            sent.append(items)
            await gate.wait()
            return [10 * item for item in items]

        batches = Batcher(send, most=4)
        tasks = [asyncio.create_task(batches.put(1))]
        await until(lambda: sent)
        tasks += [asyncio.create_task(batches.put(item)) for item in range(2, 8)]
        gate.set()
        assert await asyncio.gather(*tasks) == [10, 20, 30, 40, 50, 60, 70]
        assert sent == [[1], [2, 3, 4, 5], [6, 7]]

    async def test_with_turns_concurrent_items_are_sent_in_one_batch(self) -> None:
        """As in a server: concurrent items are sent together, and a single item is sent alone."""
        sent: list[list[int]] = []

        async def send(items: list[int]) -> list[int]:
            sent.append(sorted(items))
            await asyncio.sleep(0)
            return items

        batches = Batcher(send, turns=2)
        assert await asyncio.gather(*(batches.put(item) for item in range(9))) == list(range(9))
        assert await batches.put(9) == 9
        assert sent == [list(range(9)), [9]]

    async def test_with_turns_a_cancelled_first_caller_does_not_affect_the_others(self) -> None:
        async def send(items: list[int]) -> list[int]:
            await asyncio.sleep(0)
            return items

        batches = Batcher(send, turns=2)
        for turns in range(6):
            tasks = [asyncio.create_task(batches.put(item)) for item in (1, 2, 3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            tasks[0].cancel()
            async with asyncio.timeout(60):
                answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert answers[1:] == [2, 3]

    async def test_a_refused_batch_is_bisected_and_only_the_invalid_item_fails(self) -> None:
        sent: list[int] = []

        async def send(items: list[int]) -> list[int]:
            sent.append(len(items))
            await asyncio.sleep(0)
            if 13 in items:
                raise Invalid("unlucky")
            return items

        batches = Batcher(send)
        answers = await asyncio.gather(*(batches.put(item) for item in range(64)), return_exceptions=True)
        assert [place for place, answer in enumerate(answers) if isinstance(answer, Invalid)] == [13]
        assert [answer for answer in answers if isinstance(answer, int)] == [item for item in range(64) if item != 13]
        assert len(sent) <= 14  # the first alone, then halves of halves, not one by one

    async def test_a_batch_may_return_an_error_per_item(self) -> None:
        async def send(items: list[int]) -> list[int | HoldfastError]:
            await asyncio.sleep(0)
            return [Invalid("odd") if item % 2 else item for item in items]

        batches: Batcher[int, int] = Batcher(send)
        answers = await asyncio.gather(*(batches.put(item) for item in range(4)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [int, Invalid, int, Invalid]

    @pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("our own mistake")])
    async def test_a_failed_batch_fails_each_of_its_callers_once_and_later_ones_succeed(self, error: Exception) -> None:
        """Also those that arrived during the failing batch."""
        calls = 0
        gate = asyncio.Event()

        async def send(items: list[int]) -> list[int]:
            nonlocal calls
            calls += 1
            if calls <= 2:
                await gate.wait()
                raise error
            return items

        batches = Batcher(send)
        tasks = [asyncio.create_task(batches.put(item)) for item in (1, 2, 3)]
        await until(lambda: calls == 1)
        gate.set()
        await until(lambda: calls == 2)
        tasks.append(asyncio.create_task(batches.put(4)))
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers == [error, error, error, 4]

    async def test_a_cancelled_first_caller_does_not_block_waiting_callers(self) -> None:
        sent: list[list[int]] = []

        async def send(items: list[int]) -> list[int]:
            sent.append(items)
            await asyncio.sleep(0 if len(sent) > 1 else 60)
            return items

        batches = Batcher(send)
        tasks = [asyncio.create_task(batches.put(item)) for item in (1, 2, 3)]
        await until(lambda: sent)
        tasks[0].cancel()
        tasks[2].cancel()  # has not been sent, and need not be
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[1] == 2
        assert sent == [[1], [2]]

    async def test_all_callers_are_cancelled_when_the_event_loop_ends(self) -> None:
        async def send(items: list[int]) -> list[int]:
            await (asyncio.sleep(0) if items == [0] else asyncio.Event().wait())
            return items

        batches = Batcher(send, most=2)
        assert await batches.put(0) == 0
        tasks = [asyncio.create_task(batches.put(item)) for item in (0, 1, 2, 3, 4, 5)]
        assert await tasks.pop(0) == 0
        await until(lambda: batches._sending is not None)
        assert batches._sending is not None
        batches._sending.cancel()  # as `asyncio.run` does at its end
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 5
