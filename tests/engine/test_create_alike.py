"""Jobs that differ only in their payloads: stored as if each was created by itself."""

from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.engine.hooks.create import CreateRequest
from holdfast.errors import Invalid, InvalidField, KeyReused
from holdfast.model import NewJob
from holdfast.model.job import PAYLOAD_BYTES_MAX
from holdfast.store import Tx
from tests.engine.hooking import guard
from tests.engine.steps import ask

SENT = NewJob(type="mail", queue="post", priority=7, tags=["b", "a"], trace={"traceparent": "00-1"}, max_attempts=2)


async def jobs_in(engine: Engine) -> int:
    [row] = await ask(engine, "SELECT count(*) AS jobs FROM holdfast_jobs")
    return int(row["jobs"])


@pytest.mark.parametrize("count", [0, 1, 5, 1003])
async def test_each_job_has_its_own_payload_and_all_else_of_the_request(engine: Engine, count: int) -> None:
    """Also more jobs than a statement takes."""
    made = await engine.create_alike(SENT, [{"n": n} for n in range(count)])
    assert [one.id for one in made] == sorted({one.id for one in made})
    assert len(made) == await jobs_in(engine) == count
    for place in {0, 1, count - 1} & set(range(count)):
        job = await engine.reads.get(made[place].id)
        assert job.payload == {"n": place}
        assert (job.queue, job.priority, job.tags, job.max_attempts) == ("post", 7, ["a", "b"], 2)
        assert job.trace == {"traceparent": "00-1"}


@pytest.mark.parametrize("payload", [[], None, {"n": float("nan")}, {"n": "x" * PAYLOAD_BYTES_MAX}, {"n": "\0"}])
async def test_an_invalid_payload_is_named_and_nothing_is_stored(engine: Engine, payload: Any) -> None:
    with pytest.raises(Invalid) as refused:
        await engine.create_alike(SENT, [{}, {}, payload, {}])
    assert refused.value.fields["place"] == 2
    assert await jobs_in(engine) == 0


async def test_what_is_common_is_checked(engine: Engine) -> None:
    with pytest.raises(InvalidField):
        await engine.create_alike(NewJob(type="mail", queue="\n"), [{}, {}])
    assert await jobs_in(engine) == 0


async def test_an_idempotency_key_is_of_one_payload(engine: Engine) -> None:
    keyed = NewJob(type="mail", idempotency_key="k")
    [first] = await engine.create_alike(keyed, [{"n": 1}])
    [again] = await engine.create_alike(keyed, [{"n": 1}])
    assert (again.id, again.existed) == (first.id, True)
    with pytest.raises(KeyReused):
        await engine.create_alike(keyed, [{"n": 2}])


async def test_a_guard_sees_the_payload_of_each_job(engine: Engine) -> None:
    seen: list[Any] = []

    @guard(engine, "create", job_type="mail")
    async def look(_tx: Tx, request: CreateRequest) -> None:
        seen.append(request.job.payload)

    await engine.create_alike(NewJob(type="mail"), [{"n": 1}, {"n": 2}])
    assert seen == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("count", [1, 5])
async def test_plain_jobs_are_stored_like_all_others(engine: Engine, count: int) -> None:
    """They have a statement of their own: its rows are those of `insert_jobs`."""
    plain, others = NewJob(type="mail", queue="post"), NewJob(type="mail", queue="post", tags=["a"])
    await engine.create_alike(others, [{"n": 1}] * count)
    expected = await stored(engine)
    assert [len(rows) for rows in expected.values()] == [count] * len(expected)
    await engine.create_alike(plain, [{"n": 1}] * count)
    assert await stored(engine) == {table: rows * 2 for table, rows in expected.items()}


# What does not differ from job to job or from transaction to transaction.
STORED = {
    "jobs": "tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, parked, parked_at, priority, "
    "version, epoch, attempt, failures, lost, max_attempts, run_at, created_at, updated_at, lease_seconds, "
    "late_writes, idempotency_key, key_live, fingerprint, payload, trace, partition_key, subject, redrive_of, root_id, "
    "parent_id, needs, reason, came_from",
    "events": "seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data",
    "ready": "lane, priority, hooked, run_at",
}


async def stored(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: [tuple(row) for row in await ask(engine, f"SELECT {columns} FROM holdfast_{table}")]
        for table, columns in STORED.items()
    }
