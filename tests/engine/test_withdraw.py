"""withdraw: a running job ends another job that waits, in each lifecycle."""

import pytest

from holdfast.engine import Engine
from holdfast.errors import IllegalMove
from holdfast.lifecycle import BUILT_IN, Machine, State
from holdfast.model import Lease, NewJob
from holdfast.model.reports import Withdrawal, Withdrawn
from holdfast.store import q
from tests.engine.steps import UNKNOWN_ID, ask, run, stored


def asked(lease: Lease, target: str) -> Withdrawal:
    return Withdrawal(id=lease.id, token=lease.token, target=target, reason="unwanted")


@pytest.mark.parametrize("machine", BUILT_IN, ids=lambda machine: machine.name)
async def test_withdraw_ends_a_waiting_job_in_every_lifecycle(engine: Engine, worker: str, machine: Machine) -> None:
    """R000-24, R000-32, C-7: queued, delayed, and waiting for its retry."""
    mine = await run(engine, worker)
    end = State.CANCELED if State.CANCELED in machine.words else State.DEAD
    policy = {"backoff_base_seconds": 600}
    again = await run(engine, worker, type="again", lifecycle=machine.name, policy=policy)
    await engine.fail(worker, again.id, again.token, "E")
    assert (await engine.reads.get(again.id)).state is State.RETRYING
    waits = [NewJob(type="n", lifecycle=machine.name, delay_seconds=seconds) for seconds in (0, 60)]
    for job_id in (again.id, *(made.id for made in await engine.create_many(waits))):
        assert await engine.withdraw(worker, asked(mine, job_id)) == Withdrawn(job_id, end)
        job = await engine.reads.get(job_id)
        assert (job.state, job.reason, job.lease_worker) == (end, "unwanted", None)
        before = await stored(engine, job_id)
        assert await engine.withdraw(worker, asked(mine, job_id)) == Withdrawn(job_id, end)
        assert await stored(engine, job_id) == before


async def test_withdraw_requests_the_cancel_of_a_running_job_where_the_lifecycle_allows_it(
    engine: Engine, worker: str
) -> None:
    mine, plain, image = [await run(engine, worker, lifecycle=name) for name in ("default", "default", "images")]
    assert await engine.withdraw(worker, asked(mine, plain.id)) == Withdrawn(plain.id, State.RUNNING, asked=True)
    assert (await engine.reads.get(plain.id)).cancel_requested_at is not None
    before = await stored(engine, image.id)
    assert await engine.withdraw(worker, asked(mine, image.id)) == Withdrawn(image.id, State.RUNNING)
    assert await stored(engine, image.id) == before


async def test_withdraw_refuses_a_created_job_that_its_lifecycle_cannot_end(engine: Engine, worker: str) -> None:
    words = {"created": "new", "queued": "q", "running": "r", "succeeded": "s", "dead": "d"}
    moves = [
        "accept: created -> queued by api",
        "claim: queued -> running by worker",
        "complete: running -> succeeded by worker",
        "fail: running -> dead by worker",
        "release: running -> queued by worker",
        "reap: running -> dead by system",
    ]
    engine.ctx.lifecycles.declare(Machine("stubborn", words=words, moves=moves))
    mine = await run(engine, worker)
    made = await engine.create(NewJob(type="n", lifecycle="stubborn"), accept=False)
    with pytest.raises(IllegalMove):
        await engine.withdraw(worker, asked(mine, made.id))


async def test_lock_job_and_claim_found_affect_only_the_named_jobs(engine: Engine, worker: str) -> None:
    first, second, canceled, hooked = await engine.create_many([NewJob(type="n") for _ in range(4)])
    await engine.cancel(canceled.id)
    await ask(engine, "UPDATE holdfast_jobs SET needs = '[\"toy\"]' WHERE id = :id RETURNING id", id=hooked.id)
    assert [row["id"] for row in await engine.store.write(lambda tx: tx.all(q.lock_job, id=first.id))] == [first.id]
    holder = {"actor": "worker", "worker": worker, "instance": None, "limited": None, "token_prefix": UNKNOWN_ID[:-12]}
    ids = [first.id, canceled.id, hooked.id]
    claimed = await engine.store.write(lambda tx: tx.all(q.claim_found, ids=ids, **holder))
    assert [row["id"] for row in claimed] == [first.id]
    assert (await engine.reads.get(second.id)).state is State.QUEUED
