"""Rows written by a newer version, or damaged: other jobs continue, and most often these do too."""

import logging
from typing import Any

import msgspec
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.lifecycle import Lifecycles, Policy
from holdfast.lifecycle.render import from_stored, to_data
from holdfast.model import JobType, NewJob
from tests.engine.steps import ask, run, sweep
from tests.webhooks.steps import subscribe

NEWER = '{"lifecycle": {"name": "later", "states": ["parked"]}, "policy": {"max_lost": 9, "parking_seconds": 5}}'


async def change_policy(engine: Engine, job_id: str, change: Any) -> None:
    """Change the stored policy, as another version or a manual change would."""
    [row] = await ask(
        engine,
        "SELECT p.id, p.body FROM holdfast_policies p JOIN holdfast_jobs j ON j.policy = p.id WHERE j.id = :id",
        id=job_id,
    )
    body = change if isinstance(change, str) else msgspec.json.encode(change(msgspec.json.decode(row["body"]))).decode()
    await ask(engine, "UPDATE holdfast_policies SET body = :body WHERE id = :id RETURNING id", body=body, id=row["id"])
    engine.ctx.registry.forget()


def with_new_knobs(body: dict[str, Any]) -> dict[str, Any]:
    body["policy"] |= {"parking_seconds": 5, "reaping": "when_parked", "errors": {"E_A": "permanent", "E_B": "parked"}}
    body["lifecycle"]["policy"]["parking_seconds"] = 5
    body["lifecycle"]["colour"] = "green"
    body["lifecycle"]["words"]["parked"] = "parked"
    body["lifecycle"]["moves"].append("park: running -> parked by worker")
    return body


async def test_unknown_policy_fields_of_a_newer_version_are_ignored_and_logged_once(
    engine: Engine, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await run(engine, worker, policy={"max_lost": 7})
    await change_policy(engine, lease.id, with_new_knobs)
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        policy = (await engine.reads.snapshot(lease.policy)).policy
        engine.ctx.registry.forget()
    assert policy.max_lost == 7
    assert policy.reaping is Policy().reaping
    assert policy.errors == {"E_A": "permanent"}
    [warning] = [record.getMessage() for record in caplog.records]
    assert "parking_seconds" in warning
    assert "newer version" in warning


async def test_each_policy_is_read_with_its_own_values(engine: Engine, worker: str) -> None:
    leases = [await run(engine, worker, policy={"max_lost": lost}) for lost in (7, 8)]
    engine.ctx.registry.forget()
    assert [(await engine.reads.snapshot(lease.policy)).policy.max_lost for lease in leases] == [7, 8]


@pytest.mark.parametrize("body", ["no JSON at all", "[]", "{}", NEWER])
async def test_jobs_with_an_unreadable_policy_are_reaped_like_others(
    engine: Engine, worker: str, clock: MovableClock, body: str
) -> None:
    strange = await run(engine, worker, lifecycle="crawl")
    plain = await run(engine, worker)
    await change_policy(engine, strange.id, body)
    assert {row["id"] for row in await sweep(engine, clock, 900)} == {strange.id, plain.id}


@pytest.mark.parametrize("body", ["no JSON at all", NEWER])
async def test_a_worker_can_claim_and_fail_a_job_whose_policy_it_cannot_read(
    engine: Engine, worker: str, body: str
) -> None:
    lease = await run(engine, worker)
    await change_policy(engine, lease.id, body)
    assert (await engine.reads.snapshot(lease.policy)).policy.lease_seconds == 30
    settled = await engine.fail(worker, lease.id, lease.token, "E_X")
    assert settled.state == "retrying"


async def test_webhooks_are_sent_for_all_jobs_although_one_policy_is_unreadable(engine: Engine, worker: str) -> None:
    await subscribe(engine, events=["job.completed"])
    made = (await engine.webhooks.fan_out()).made
    for body in (None, "no JSON at all"):
        lease = await run(engine, worker)
        if body is not None:
            await change_policy(engine, lease.id, body)
        await engine.complete(worker, lease.id, lease.token)
        made += (await engine.webhooks.fan_out()).made
    assert made == 2


async def test_jobs_of_a_type_with_unknown_policy_fields_can_be_created(engine: Engine) -> None:
    await engine.job_types.declare(
        JobType(name="mail", queue="post", policy={"max_attempts": 9}), JobType(name="other")
    )
    await ask(
        engine,
        "UPDATE holdfast_job_types SET policy = :policy WHERE name = 'mail' RETURNING name",
        policy='{"max_attempts": 9, "parking_seconds": 5}',
    )
    await ask(engine, "UPDATE holdfast_job_types SET policy = 'no JSON' WHERE name = 'other' RETURNING name")
    engine.ctx.registry.forget()
    job = await engine.reads.get((await engine.create(NewJob(type="mail"))).id)
    assert (job.queue, job.max_attempts) == ("post", 9)
    await engine.create(NewJob(type="other"))


@pytest.mark.parametrize("machine", list(Lifecycles()), ids=lambda machine: machine.name)
def test_an_unreadable_lifecycle_falls_back_to_the_stored_moves(machine: Any) -> None:
    same, ignored = from_stored(to_data(machine), machine.mask)
    assert (same.mask, same.words, ignored) == (machine.mask, machine.words, [])
    plain, ignored = from_stored(None, machine.mask)
    assert (plain.mask, ignored) == (machine.mask, ["lifecycle"])
