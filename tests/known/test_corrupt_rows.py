"""A row corrupted by manual SQL affects only its own job."""

import sqlite3

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import IllegalMove, RowRefused
from holdfast.ids import SeededIds
from holdfast.lifecycle import Lifecycles, Machine, State
from holdfast.model import NewJob
from holdfast.store import open_store
from holdfast.store.migrate import sqlite_path
from tests.engine.steps import ask, run, sweep


async def test_a_job_with_an_unreadable_payload_is_dead_and_does_not_fail_the_claim(
    engine: Engine, worker: str
) -> None:
    """Every claim failed, of all lanes: the jobs beside it were taken, and no worker was told."""
    jobs = [await engine.create(NewJob(type=f"t{n % 2}", payload={"n": n})) for n in range(6)]
    spoilt = jobs[2].id
    await ask(engine, "UPDATE holdfast_jobs SET payload = '{not json' WHERE id = :id RETURNING id", id=spoilt)

    leases = await engine.claim(worker, limit=10)

    assert sorted(lease.payload["n"] for lease in leases) == [0, 1, 3, 4, 5]
    job = await engine.reads.get(spoilt)
    assert (job.state, job.reason, job.payload) == (State.DEAD, "unreadable_job", "{not json")
    assert "column payload" in job.error["message"]


async def test_a_claim_of_one_finds_the_job_behind_a_corrupt_one(engine: Engine, worker: str) -> None:
    spoilt, good = [await engine.create(NewJob(type="t")) for _ in range(2)]
    await ask(engine, "UPDATE holdfast_jobs SET tags = 'x' WHERE id = :id RETURNING id", id=spoilt.id)
    assert [lease.id for lease in await engine.claim(worker)] == [good.id]


async def test_a_corrupt_job_is_left_out_of_a_claim_over_http(engine: Engine, worker: str) -> None:
    spoilt, good = [await engine.create(NewJob(type="t")) for _ in range(2)]
    await ask(engine, "UPDATE holdfast_jobs SET payload = '[' WHERE id = :id RETURNING id", id=spoilt.id)
    for _ in range(2):  # the request and its repeat
        assert [lease.id for lease in await engine.claim_once(worker, "request", limit=5) or ()] == [good.id]
    assert (await engine.reads.get(spoilt.id)).reason == "unreadable_job"


async def test_a_corrupt_row_does_not_hide_other_jobs_in_a_page(engine: Engine) -> None:
    jobs = [await engine.create(NewJob(type="t")) for _ in range(3)]
    await ask(engine, "UPDATE holdfast_jobs SET payload = '[' WHERE id = :id RETURNING id", id=jobs[0].id)
    assert len((await engine.reads.page()).jobs) == 3


@pytest.mark.parametrize("column", ["max_attempts = attempt", "attempt = max_attempts, epoch = max_attempts"])
async def test_a_waiting_job_cannot_be_left_without_an_attempt(engine: Engine, worker: str, column: str) -> None:
    """Its claim would fail, and with it that of every job taken together with it."""
    retrying = await run(engine, worker, type="t", max_attempts=3)
    await engine.fail(worker, retrying.id, retrying.token, "E_AGAIN", retry_after_seconds=3600)
    queued = await engine.create(NewJob(type="t"))
    for job_id in (queued.id, retrying.id):
        with pytest.raises((RowRefused, IllegalMove)):
            await ask(engine, f"UPDATE holdfast_jobs SET {column} WHERE id = :id RETURNING id", id=job_id)
    assert [lease.id for lease in await engine.claim(worker, limit=9)] == [queued.id]


@pytest.mark.parametrize("lifecycle", ["default", "orchestration", "transcode"])
async def test_the_last_failed_attempt_still_ends_a_job(engine: Engine, worker: str, lifecycle: str) -> None:
    """On its way some lifecycles pass through retrying with no attempt left."""
    lease = await run(engine, worker, lifecycle=lifecycle, max_attempts=1)
    assert (await engine.fail(worker, lease.id, lease.token, "E_LAST")).state is State.DEAD


# -- rows stored before the constraint existed ------------------------------------------------------------------------

THROUGH_RETRYING = Machine(
    "through-retrying",
    words={"queued": "q", "running": "r", "retrying": "w", "succeeded": "s", "dead": "d"},
    moves=[
        "claim: queued, retrying -> running by worker",
        "complete: running -> succeeded by worker",
        "release: running -> queued by worker",
        "fail: running -> retrying by worker",
        "fail: retrying -> dead by worker, system",
        "reap: running -> retrying by system",
        "reap: retrying -> dead by system",
        "requeue: retrying -> queued by api, system",
    ],
)


async def spoil(engine: Engine, url: str, job_id: str) -> None:
    """Leave a waiting job without an attempt, past the constraint and the trigger."""
    if engine.store.dialect == "sqlite":
        connection = sqlite3.connect(sqlite_path(url))
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("DROP TRIGGER holdfast_jobs_attempt_left")
        connection.execute("UPDATE holdfast_jobs SET max_attempts = attempt WHERE id = ?", (job_id,))
        connection.commit()
        connection.close()
    else:
        await ask(engine, "ALTER TABLE holdfast_jobs DISABLE TRIGGER holdfast_jobs_checked")
        await ask(engine, "UPDATE holdfast_jobs SET max_attempts = attempt WHERE id = :id RETURNING id", id=job_id)
        await ask(engine, "ALTER TABLE holdfast_jobs ENABLE TRIGGER holdfast_jobs_checked")


async def test_a_claim_skips_a_job_that_has_no_attempt_left(engine: Engine, worker: str, store_url: str) -> None:
    spoilt, good = [await engine.create(NewJob(type="t")) for _ in range(2)]
    await spoil(engine, store_url, spoilt.id)
    assert [lease.id for lease in await engine.claim(worker, limit=5)] == [good.id]


@pytest.mark.parametrize("lifecycle", ["default", "generation"], ids=["claimed again", "queued again"])
async def test_requeue_due_skips_a_retry_that_has_no_attempt_left(
    engine: Engine, worker: str, store_url: str, clock: MovableClock, lifecycle: str
) -> None:
    waiting = [await run(engine, worker, lifecycle=lifecycle, max_attempts=3) for _ in range(2)]
    for lease in waiting:
        await engine.fail(worker, lease.id, lease.token, "E_AGAIN", retry_after_seconds=60)
    await spoil(engine, store_url, waiting[0].id)
    clock.advance(61)
    assert await engine.maintenance.requeue_due() == 1
    spoilt = await engine.reads.get(waiting[0].id)
    assert (spoilt.state, spoilt.due) == (State.RETRYING, False)


async def test_a_job_that_dies_through_retrying_is_never_claimable(store_url: str, clock: MovableClock) -> None:
    """This lifecycle has no direct way from running to dead, and claims retries as they are."""
    ids = SeededIds(5)
    lifecycles = Lifecycles(THROUGH_RETRYING)
    engine = Engine(await open_store(store_url, clock, ids), lifecycles=lifecycles, clock=clock, ids=ids)
    worker = (await engine.workers.register()).id
    failed, lost = [await run(engine, worker, lifecycle="through-retrying", max_attempts=1) for _ in range(2)]
    assert (await engine.fail(worker, failed.id, failed.token, "E_LAST")).state is State.DEAD
    await sweep(engine, clock, 300)
    assert (await engine.reads.get(lost.id)).state is State.DEAD
    await engine.close()
