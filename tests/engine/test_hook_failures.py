"""A hook that fails harms the job that it belongs to, and no other."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Done, Engine, Failure
from holdfast.errors import ExtensionMissing, HookFailed, Refused
from holdfast.lifecycle import State
from holdfast.model import Job, Lease, NewJob
from holdfast.model.reports import Settled
from holdfast.store import Tx, open_store
from holdfast.store.queries import Query
from tests.engine.hooking import adopt, effect
from tests.engine.steps import ask, sweep

BAD = 37


async def raises(_tx: Tx) -> None:
    raise ZeroDivisionError("a mistake in the effect")


async def refuses(_tx: Tx) -> None:
    raise Refused("an effect cannot refuse")


async def fails_in_sql(tx: Tx) -> None:
    await tx.one(Query("broken", "INSERT INTO job_types (name) VALUES ('half') RETURNING name"))


async def fails_in_sql_later(tx: Tx) -> None:
    await tx.run(Query("broken", "INSERT INTO job_types (name) VALUES ('half') RETURNING name"))


WAYS = {"raises": raises, "refuses": refuses, "sql": fails_in_sql, "sql later": fails_in_sql_later}


async def hundred(engine: Engine, worker: str, **job: Any) -> list[Lease]:
    await engine.create_many([NewJob(type="n", payload={"n": n}, **job) for n in range(100)])
    leases = await engine.claim(worker, limit=100)
    assert len(leases) == 100
    return leases


def break_one(engine: Engine, way: str, *verbs: str) -> None:
    @effect(engine, *verbs)
    async def follow(tx: Tx, _verb: str, job: Job) -> None:
        await tx.run(Query("note", "INSERT INTO secrets (name, value) VALUES (:id, 'x')"), id=job.id)
        if job.payload["n"] == BAD:
            await WAYS[way](tx)


@pytest.mark.parametrize("way", WAYS)
async def test_of_a_hundred_completions_the_one_whose_effect_fails_waits(engine: Engine, worker: str, way: str) -> None:
    break_one(engine, way, "complete")
    leases = await hundred(engine, worker)
    answers = await engine.complete_many(worker, [Done(lease.id, lease.token) for lease in leases])
    bad = next(place for place, lease in enumerate(leases) if lease.payload["n"] == BAD)
    assert isinstance(answers[bad], HookFailed)
    assert sum(isinstance(answer, Settled) for answer in answers) == 99
    states = [(await engine.get(lease.id)).state for lease in leases]
    assert (states.count(State.SUCCEEDED), states[bad]) == (99, State.RUNNING)
    [row] = await ask(engine, "SELECT job_id, verb, extension, failures FROM hook_failures")
    assert tuple(row) == (leases[bad].id, "complete", "toy", 1)
    [noted] = await ask(engine, "SELECT count(*) AS n FROM secrets")
    assert noted["n"] == 99, "what the effect of the bad one wrote is undone"


@pytest.mark.parametrize("way", WAYS)
async def test_of_a_hundred_failures_the_one_whose_effect_fails_waits(engine: Engine, worker: str, way: str) -> None:
    break_one(engine, way, "fail")
    leases = await hundred(engine, worker)
    failures = [Failure(id=lease.id, token=lease.token, code="E", permanent=True) for lease in leases]
    answers = await engine.fail_many(worker, failures)
    assert sum(isinstance(answer, HookFailed) for answer in answers) == 1
    assert len((await engine.page(limit=200)).jobs) == 100
    [dead] = await ask(engine, "SELECT count(*) AS n FROM jobs WHERE state = 'dead'")
    assert dead["n"] == 99


@pytest.mark.parametrize("way", WAYS)
async def test_of_a_hundred_lost_jobs_the_one_whose_effect_fails_is_reaped_later(
    engine: Engine, worker: str, clock: MovableClock, way: str
) -> None:
    break_one(engine, way, "reap")
    leases = await hundred(engine, worker)
    await sweep(engine, clock, 60)
    [left] = await ask(engine, "SELECT id FROM jobs WHERE state = 'running'")
    assert left["id"] == next(lease.id for lease in leases if lease.payload["n"] == BAD)
    engine.rules.hooks._effects.clear()
    assert await engine.reap() == [], "not before its time"
    clock.advance(10)
    assert [row["id"] for row in await engine.reap()] == [left["id"]]


@pytest.mark.parametrize("way", WAYS)
async def test_of_a_hundred_cancellations_the_one_whose_effect_fails_is_refused(engine: Engine, way: str) -> None:
    break_one(engine, way, "cancel")
    jobs = [job.id for job in await engine.create_many([NewJob(type="n", payload={"n": n}) for n in range(100)])]
    answers = await engine.cancel_many(jobs)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, HookFailed)] == [BAD]
    [canceled] = await ask(engine, "SELECT count(*) AS n FROM jobs WHERE state = 'canceled'")
    assert canceled["n"] == 99


async def test_a_claim_whose_effect_fails_gives_the_others_away(engine: Engine, worker: str) -> None:
    break_one(engine, "raises", "claim")
    await engine.create_many([NewJob(type="n", payload={"n": n}) for n in range(100)])
    leases = await engine.claim(worker, limit=100)
    assert len(leases) == 99
    [left] = await ask(engine, "SELECT due, state FROM jobs WHERE state <> 'running'")
    assert (bool(left["due"]), left["state"]) == (False, "queued"), "it left the claim index for a while"


async def test_a_process_without_the_extension_leaves_its_jobs_alone(
    engine: Engine, worker: str, clock: MovableClock, store_url: str
) -> None:
    @effect(engine, "complete")
    async def follow(_tx: Tx, _verb: str, _job: Job) -> None:
        pass

    await adopt(engine, "n")
    queued = (await engine.create(NewJob(type="n"))).id
    other = Engine(await open_store(store_url, clock), clock=clock)
    try:
        with pytest.raises(ExtensionMissing, match="toy"):
            await other.create(NewJob(type="n"))
        with pytest.raises(ExtensionMissing, match="toy"):
            await other.cancel(queued)
        assert await other.claim(worker) == []
        assert not (await other.look(worker)).any
        [lease] = await engine.claim(worker)
        answers = await other.complete_many(worker, [Done(lease.id, lease.token)])
        assert isinstance(answers[0], ExtensionMissing)
        clock.advance(100_000)
        for _ in range(3):
            clock.advance(500)
            assert await other.reap() == []
        assert (await engine.get(queued)).state is State.RUNNING
    finally:
        await other.close()
