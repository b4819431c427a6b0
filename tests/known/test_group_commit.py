"""Group commit of creates: an error of one caller reaches only that caller, and no job is created twice."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from holdfast.engine import Engine
from holdfast.engine.insert import checked
from holdfast.errors import Conflict, HoldfastError, HookFailed, Locked
from holdfast.lifecycle import State
from holdfast.model import JobType, NewJob
from holdfast.store.postgres import LOCK_SECONDS
from holdfast.store.queries import Query
from tests.engine.hooking import effect, guard
from tests.engine.steps import ask
from tests.server.steps import Served, serving

ANSWER_SECONDS = 60  # only a hang takes as long


async def hand_in(served: Served, **body: Any) -> tuple[int, str | None]:
    answer = await served.http.post("/jobs", json={"jobType": "REPORT", "payload": {}, **body}, timeout=ANSWER_SECONDS)
    return answer.status_code, answer.json().get("code")


async def jobs_stored(engine: Engine) -> int:
    [row] = await ask(engine, "SELECT count(*) AS jobs FROM holdfast_jobs")
    return int(row["jobs"])


async def test_an_error_after_the_commit_does_not_create_the_jobs_again(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 requests became 41 jobs: the error of the acceptance was taken for that of the creates."""

    async def failing(*_: Any) -> Any:
        raise Conflict("an unexpected error")

    async with serving(store_url) as served:
        await served.engine.job_types.declare(JobType(name="REPORT", lifecycle="orchestration"))
        monkeypatch.setattr(Engine, "accept_created", failing)
        answers = await asyncio.gather(*(hand_in(served) for _ in range(15)))
        assert answers == [(503, "outcome_unknown")] * 15
        assert await jobs_stored(served.engine) == 15


async def test_a_job_that_cannot_be_accepted_does_not_affect_others_in_its_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [checked(NewJob(type=f"t{n}", lifecycle="orchestration")) for n in range(9)]
    accept_made, wrong = Engine.accept_created, set[str]()

    async def refusing_one(self: Engine, ids: list[str]) -> list[str]:
        rows = await ask(self, "SELECT id FROM holdfast_jobs WHERE type = 't4'")
        wrong.update(row["id"] for row in rows)
        if wrong.intersection(ids):
            raise Conflict("not this one")
        return await accept_made(self, ids)

    monkeypatch.setattr(Engine, "accept_created", refusing_one)
    answers = await engine.create_each(jobs)
    assert [isinstance(answer, HoldfastError) for answer in answers] == [n == 4 for n in range(9)]
    states = await ask(engine, "SELECT state, count(*) AS jobs FROM holdfast_jobs GROUP BY state ORDER BY state")
    assert [tuple(row) for row in states] == [(State.CREATED, 1), (State.QUEUED, 8)]


async def test_an_error_in_a_guard_fails_only_its_own_job_of_the_batch(engine: Engine) -> None:
    @guard(engine, "create", job_type="t1")
    async def mistaken(tx: Any, request: Any) -> None:
        raise ZeroDivisionError

    answers = await engine.create_each([checked(NewJob(type=f"t{n}")) for n in range(3)])
    assert [type(answer).__name__ for answer in answers] == ["Created", "HookFailed", "Created"]
    assert await jobs_stored(engine) == 2


# -- a key in a transaction that does not end ------------------------------------------------------------------------


@asynccontextmanager
async def key_held_in_an_open_transaction(engine: Engine, url: str, key: str) -> AsyncIterator[None]:
    """As by a service that creates a job in its own transaction and then waits for something else."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await engine.create(NewJob(type="REPORT", idempotency_key=key), connection=connection)
            yield
    finally:
        await connection.close()


async def look(tx: Any, *_: Any) -> None:
    """What an app does with each create."""
    await tx.all(Query("look", "SELECT 1 AS seen"))


@pytest.mark.parametrize("hook", [None, "guard", "effect"])
async def test_a_key_locked_by_an_open_transaction_does_not_block_other_creates(
    fresh_postgres_url: str, hook: str | None
) -> None:
    """Eleven of eleven creates were answered 503 after half a minute."""
    url = fresh_postgres_url
    async with serving(url) as served:
        if hook is not None:
            {"guard": guard, "effect": effect}[hook](served.engine, "create", job_type="REPORT")(look)
        await hand_in(served)  # lane and policy are known from here on
        async with key_held_in_an_open_transaction(served.engine, url, "held"):
            blocked = asyncio.create_task(hand_in(served, idempotencyKey="held"))
            others = [hand_in(served) for _ in range(5)]
            others += [hand_in(served, idempotencyKey=f"free-{n}") for n in range(5)]
            assert await asyncio.gather(*others) == [(202, None)] * 10
            assert await blocked == (503, "idempotency_key_locked")
        assert await hand_in(served, idempotencyKey="held") == (202, None)
        assert await jobs_stored(served.engine) == 12


@pytest.mark.parametrize("hook", [None, "guard", "effect"])
async def test_other_jobs_in_a_batch_with_a_locked_key_are_stored(fresh_postgres_url: str, hook: str | None) -> None:
    async with serving(fresh_postgres_url) as served:
        await hand_in(served)
        if hook is not None:
            {"guard": guard, "effect": effect}[hook](served.engine, "create", job_type="REPORT")(look)
        jobs = [checked(NewJob(type="REPORT", idempotency_key=key)) for key in ("a", "held", "b", "c")]
        async with key_held_in_an_open_transaction(served.engine, fresh_postgres_url, "held"):
            answers = await served.engine.create_each(jobs)
        assert [type(answer).__name__ for answer in answers] == ["Created", "Locked", "Created", "Created"]
        assert "'held'" in str(answers[1])


async def test_a_single_create_with_a_locked_key_is_told_to_try_again(fresh_postgres_url: str) -> None:
    async with serving(fresh_postgres_url) as served:
        await hand_in(served)
        async with key_held_in_an_open_transaction(served.engine, fresh_postgres_url, "held"):
            with pytest.raises(Locked) as error:
                await served.engine.create(NewJob(type="REPORT", idempotency_key="held"))
        assert error.value.code == "idempotency_key_locked"


async def test_a_create_does_not_change_the_lock_timeout_of_a_callers_connection(fresh_postgres_url: str) -> None:
    """Our limit is not left behind on a connection that is not ours."""
    async with serving(fresh_postgres_url) as served:
        connection = await asyncpg.connect(fresh_postgres_url)
        async with connection.transaction():
            await served.engine.create(NewJob(type="REPORT", idempotency_key="k"), connection=connection)
            assert await connection.fetchval("SHOW lock_timeout") == "0"
        await connection.close()


async def test_a_job_type_first_used_in_an_open_transaction_does_not_block_other_types(fresh_postgres_url: str) -> None:
    """Its lane is not committed yet: a create for the same lane gets a retryable error."""
    async with serving(fresh_postgres_url) as served:
        await hand_in(served, jobType="OTHER")
        async with key_held_in_an_open_transaction(served.engine, fresh_postgres_url, "held"):
            answers = await asyncio.gather(hand_in(served), hand_in(served, jobType="OTHER"))
        assert answers == [(503, "locked"), (202, None)]
        assert await hand_in(served) == (202, None)


# -- a row that the database cannot store ----------------------------------------------------------------------------


async def test_the_longest_capabilities_that_are_accepted_can_be_stored(engine: Engine) -> None:
    """Dozens of 200 characters were more than an index of PostgreSQL holds, and the create was answered 503."""
    names = [secrets.token_hex(100) for _ in range(40)]  # as many as a worker can offer
    job = NewJob(type="t", requires=names, prefers=[secrets.token_hex(100) for _ in range(50)])
    made = await engine.create_each([checked(NewJob(type="plain")), checked(job)])
    assert [type(one).__name__ for one in made] == ["Created", "Created"]
    worker = await engine.workers.register(capabilities=dict.fromkeys(names, True))
    assert len(await engine.claim(worker.id, limit=9)) == 2
    again = await engine.create(job)
    assert (await engine.reads.get(again.id)).lane == (await engine.reads.get(made[1].id)).lane  # type: ignore[union-attr]


async def test_a_row_that_the_database_cannot_store_fails_only_its_own_request(fresh_postgres_url: str) -> None:
    """An operator's own index on the payload cannot hold every payload; other creates have nothing to do with it."""
    async with serving(fresh_postgres_url) as served:
        await ask(served.engine, "CREATE INDEX operators_own ON holdfast_jobs (payload)")
        too_long = {"text": secrets.token_hex(4000)}
        bodies: list[dict[str, Any]] = [{}, {}, {"payload": too_long}, {}, {}]
        answers = await asyncio.gather(*(hand_in(served, **body) for body in bodies))
        assert answers == [(202, None)] * 2 + [(422, "value_refused")] + [(202, None)] * 2


async def test_a_row_that_violates_a_constraint_fails_only_its_own_request(fresh_postgres_url: str) -> None:
    async with serving(fresh_postgres_url) as served:
        await ask(served.engine, "ALTER TABLE holdfast_jobs ADD CONSTRAINT operators_own CHECK (priority < 50)")
        jobs = [checked(NewJob(type="t", priority=priority)) for priority in (0, 60, 10)]
        answers = await served.engine.create_each(jobs)
        assert [type(answer).__name__ for answer in answers] == ["Created", "RowRefused", "Created"]


async def seats_for(connection: asyncpg.Connection) -> None:
    await connection.execute("CREATE TABLE seats (free integer); INSERT INTO seats VALUES (9)")


@pytest.mark.parametrize("hook", ["guard", "effect"])
async def test_a_guard_or_effect_may_wait_for_a_lock_of_the_app(fresh_postgres_url: str, hook: str) -> None:
    """The limit is for keys. What an app does in the transaction waits as long as it has to."""
    async with serving(fresh_postgres_url) as served:
        engine, connection = served.engine, await asyncpg.connect(fresh_postgres_url)
        await seats_for(connection)

        async def take_a_seat(tx: Any, *_: Any) -> None:
            await tx.all(Query("seat", "UPDATE seats SET free = free - 1 RETURNING free"))

        {"guard": guard, "effect": effect}[hook](engine, "create", job_type="t")(take_a_seat)
        async with connection.transaction():
            await connection.execute("UPDATE seats SET free = free - 1")
            creating = asyncio.create_task(engine.create(NewJob(type="t", idempotency_key="k")))
            done, _ = await asyncio.wait([creating], timeout=2 * LOCK_SECONDS)
            assert not done
        assert (await creating).existed is False
        assert await connection.fetchval("SELECT free FROM seats") == 7
        await connection.close()


async def test_an_effect_that_fails_on_a_lock_is_reported_as_hook_failed(fresh_postgres_url: str) -> None:
    async with serving(fresh_postgres_url) as served:
        engine, connection = served.engine, await asyncpg.connect(fresh_postgres_url)
        await seats_for(connection)

        @effect(engine, "create", job_type="t")
        async def take_a_seat(tx: Any, verb: str, job: Any) -> None:
            await tx.all(Query("seat", "SELECT free FROM seats FOR UPDATE NOWAIT"))

        async with connection.transaction():
            await connection.execute("UPDATE seats SET free = free - 1")
            with pytest.raises(HookFailed, match="toy"):
                await engine.create(NewJob(type="t", idempotency_key="k"))
        assert (await engine.reads.page()).jobs == []
        await connection.close()
