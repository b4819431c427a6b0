"""prune: finished jobs leave with their history when their time is over."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits, Progress, Retention
from holdfast.errors import Invalid, NotFound
from holdfast.lifecycle import FINAL, Lifecycles, State
from holdfast.model import NewJob, Part
from holdfast.store import q
from tests.engine.steps import ask, bring, run

DAY = 86_400


async def states(engine: Engine) -> list[str]:
    return [row["state"] for row in await ask(engine, "SELECT state FROM holdfast_jobs ORDER BY state")]


async def test_each_final_state_has_its_own_retention(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-23: succeeded 7 days, the rest 30; only final rows ever leave, however old the others are."""
    for state in State:
        await bring(engine, worker, Lifecycles()["default"], state)
    everything = await states(engine)
    clock.advance(7 * DAY - 1)
    assert await engine.maintenance.prune(Retention()) == 0
    clock.advance(1)
    assert await engine.maintenance.prune(Retention()) == 1
    assert await states(engine) == [state for state in everything if state != "succeeded"]
    clock.advance(23 * DAY - 1)
    assert await engine.maintenance.prune(Retention()) == 0
    clock.advance(1)

    assert await engine.maintenance.prune(Retention()) == 3
    assert await states(engine) == sorted(set(State) - FINAL)
    clock.advance(3650 * DAY)
    assert await engine.maintenance.prune(Retention()) == 0


async def test_a_pruned_job_loses_its_events_and_parts(engine: Engine, worker: str, clock: MovableClock) -> None:
    kept = await run(engine, worker)
    gone = await run(engine, worker)
    for lease in (kept, gone):
        await engine.progress(worker, Progress(id=lease.id, token=lease.token, parts=[Part(name="a")]))
        await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)
    [again, other] = await engine.claim(worker, limit=2)
    finished = again if again.id == gone.id else other
    await engine.complete(worker, finished.id, finished.token)
    clock.advance(DAY)

    assert await engine.maintenance.prune(Retention(succeeded=DAY)) == 1

    with pytest.raises(NotFound):
        await engine.reads.get(gone.id)
    for table in ("events", "parts"):
        assert {row["job_id"] for row in await ask(engine, f"SELECT job_id FROM holdfast_{table}")} == {kept.id}


async def test_age_counts_from_the_end_not_from_the_creation(engine: Engine, worker: str, clock: MovableClock) -> None:
    lease = await run(engine, worker)
    clock.advance(10 * DAY)
    await engine.complete(worker, lease.id, lease.token)
    clock.advance(7 * DAY - 1)
    assert await engine.maintenance.prune(Retention()) == 0
    clock.advance(1)
    assert await engine.maintenance.prune(Retention()) == 1


async def test_a_state_without_a_limit_is_kept_for_ever(engine: Engine, worker: str, clock: MovableClock) -> None:
    for state in sorted(FINAL):
        await bring(engine, worker, Lifecycles()["default"], state)
    clock.advance(3650 * DAY)
    forever = Retention(succeeded=None, dead=None, canceled=None, rejected=None)
    assert await engine.maintenance.prune(forever) == 0
    assert await engine.maintenance.prune(Retention(succeeded=None, dead=0, canceled=None, rejected=None)) == 1
    assert await states(engine) == ["canceled", "rejected", "succeeded"]
    with pytest.raises(Invalid):
        Retention(dead=-1)


async def test_pruning_is_bounded_per_call_and_takes_the_oldest_first(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    engine.ctx.limits = EngineLimits(sweep_batch=3)
    jobs = await engine.create_many([NewJob(type="n") for _ in range(7)])
    for job in jobs:
        await engine.cancel(job.id)
    clock.advance(60 * DAY)

    assert await engine.maintenance.prune(Retention(), limit=2) == 2
    assert [job.id for job in (await engine.reads.page()).jobs][::-1] == [job.id for job in jobs[2:]]
    assert [await engine.maintenance.prune(Retention(), limit=100) for _ in range(3)] == [3, 2, 0]


async def recorded(engine: Engine) -> list[str]:
    """The jobs of which the record of an attempt is kept."""
    return [row["job_id"] for row in await ask(engine, "SELECT job_id FROM holdfast_kept_attempts ORDER BY job_id")]


async def test_records_of_attempts_are_kept_unless_they_have_a_retention(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-30."""
    lease = await run(engine, worker)
    await engine.complete(worker, lease.id, lease.token)
    clock.advance(DAY)
    assert await engine.maintenance.prune(Retention(succeeded=DAY)) == 1
    clock.advance(3650 * DAY)
    assert await engine.maintenance.prune(Retention()) == 0
    assert await recorded(engine) == [lease.id]

    assert await engine.maintenance.prune(Retention(attempts=4000 * DAY)) == 0
    assert await engine.maintenance.prune(Retention(attempts=3651 * DAY)) == 1
    assert await recorded(engine) == []


async def test_only_the_attempts_of_pruned_jobs_are_recorded_apart(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """Those of the others are still in their events."""
    gone, kept = [await run(engine, worker) for _ in range(2)]
    await engine.fail(worker, kept.id, kept.token, "E", retry_after_seconds=0)
    await engine.complete(worker, gone.id, gone.token)
    clock.advance(DAY)
    assert await engine.maintenance.prune(Retention(succeeded=DAY)) == 1
    assert await recorded(engine) == [gone.id]


async def test_old_attempts_lists_the_jobs_of_those_that_ended_long_enough_ago(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    jobs = []
    for _ in range(2):
        lease = await run(engine, worker)
        await engine.complete(worker, lease.id, lease.token)
        jobs.append(lease.id)
        clock.advance(DAY)
    assert await engine.maintenance.prune(Retention(succeeded=0)) == 2

    async def old(days: int) -> list[str]:
        asked = {"keep_seconds": days * DAY, "limit": 9}
        return [row["job_id"] for row in await engine.store.write(lambda tx: tx.all(q.old_attempts, **asked))]

    assert [await old(days) for days in (3, 2, 1)] == [[], jobs[:1], jobs]


async def test_the_retention_of_an_attempt_counts_from_its_end(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    first = await run(engine, worker)
    await engine.fail(worker, first.id, first.token, "E", retry_after_seconds=0)
    clock.advance(5 * DAY)
    [second] = await engine.claim(worker)
    await engine.complete(worker, second.id, second.token)
    await engine.maintenance.prune(Retention(succeeded=0))
    assert await recorded(engine) == [first.id, first.id]
    clock.advance(DAY)
    assert await engine.maintenance.prune(Retention(attempts=3 * DAY)) == 1
    assert await recorded(engine) == [first.id]
    clock.advance(2 * DAY)
    assert await engine.maintenance.prune(Retention(attempts=3 * DAY)) == 1


async def test_records_of_attempts_are_deleted_in_bounded_batches_the_oldest_first(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    leases = [await run(engine, worker) for _ in range(5)]
    for lease in leases:
        await engine.complete(worker, lease.id, lease.token)
    await engine.maintenance.prune(Retention(succeeded=0))
    clock.advance(DAY)
    assert await engine.maintenance.prune(Retention(attempts=DAY), limit=3) == 3
    assert await recorded(engine) == sorted(lease.id for lease in leases)[3:]


def test_a_retention_of_attempts_that_is_no_number_is_refused() -> None:
    with pytest.raises(Invalid, match="retention_attempts"):
        Retention(attempts=-1)
