"""The clock of the database is set back by an hour: jobs run and lost jobs are recovered as usual."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits, Retention
from holdfast.engine.maintenance import clock_correction as set_back_module
from holdfast.ids import SeededIds
from holdfast.lifecycle import State
from holdfast.maintenance.maintainer import Maintainer
from holdfast.model import NewJob
from holdfast.store import q
from holdfast.store.queries import Query
from tests.engine.limiting import crawl, crawl_by_domain, declare, end, limit
from tests.engine.steps import ask, held, run

HOUR, DAY = 3600.0, 86_400.0
ALLOWED_SECONDS = 108  # three times as long as without a step: lease, sweep and a second


async def maintain(engine: Engine, clock: MovableClock, seconds: float = 0) -> None:
    """Let time pass with a sweep every ten seconds; at least one."""
    await engine.maintenance.reap()
    while seconds > 0:
        clock.advance(min(10, seconds))
        seconds -= 10
        await engine.maintenance.reap()


async def set_back(engine: Engine, clock: MovableClock) -> None:
    await maintain(engine, clock)
    clock.advance(-HOUR)


async def test_a_job_that_waits_in_its_queue_is_claimed_at_once(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    made = await engine.create(NewJob(type="echo"))
    clock.advance(-HOUR)
    assert [lease.id for lease in await engine.claim(worker)] == [made.id]


async def test_a_job_that_prefers_another_worker_is_not_deferred_for_the_hour(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    preferred = await engine.workers.register(capabilities={"gpu": True})
    await engine.heartbeat(preferred.id, [])
    made = await engine.create(NewJob(type="echo", prefers=["gpu"]))
    assert await engine.claim(worker) == []
    await set_back(engine, clock)
    assert [lease.id for lease in await engine.claim(worker)] == [made.id]


async def test_the_job_of_a_lost_worker_is_recovered_and_that_of_a_live_one_is_kept(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    other = (await engine.workers.register()).id
    lost, alive = await run(engine, worker), await run(engine, other)
    await set_back(engine, clock)
    for _ in range(ALLOWED_SECONDS // 10):
        await maintain(engine, clock, 10)
        assert (await engine.heartbeat(other, [held(alive)])).lost == []
    assert [(await engine.reads.get(lease.id)).state for lease in (lost, alive)] == [State.RETRYING, State.RUNNING]
    assert [lease.id for lease in await engine.claim(worker)] == [lost.id]


async def test_a_transcode_job_whose_worker_is_silent_is_recovered(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """Where a lease ends only once the worker is offline: it was heard from now at the latest."""
    policy = {"lease_seconds": 30, "heartbeat_seconds": 10, "offline_seconds": 60}
    lost = await run(engine, worker, lifecycle="transcode", policy=policy)
    await engine.heartbeat(worker, [held(lost)])
    await set_back(engine, clock)
    await maintain(engine, clock, ALLOWED_SECONDS)
    assert (await engine.reads.get(lost.id)).reason == "lease_expired"


async def test_a_grace_period_in_force_does_not_last_for_the_hour(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await engine.maintenance.reap()
    lost = await run(engine, worker)
    clock.advance(60)
    assert await engine.maintenance.reap() == [], "the grace begins"
    await set_back(engine, clock)
    await maintain(engine, clock, ALLOWED_SECONDS)
    assert (await engine.reads.get(lost.id)).state is State.RETRYING


@pytest.mark.parametrize("policy", [{"max_runtime_seconds": 50}, {"no_progress_seconds": 50}])
async def test_a_job_that_runs_for_too_long_is_ended(
    engine: Engine, worker: str, clock: MovableClock, policy: dict[str, Any]
) -> None:
    lease = await run(engine, worker, policy=policy)
    await set_back(engine, clock)
    for _ in range(8):
        await engine.heartbeat(worker, [held(lease)])
        await maintain(engine, clock, 10)
    assert (await engine.reads.get(lease.id)).state is State.RETRYING


async def test_a_cancel_request_that_is_ignored_is_enforced(engine: Engine, worker: str, clock: MovableClock) -> None:
    lease = await run(engine, worker, policy={"cancel_grace_seconds": 50})
    await engine.cancel(lease.id)
    await set_back(engine, clock)
    for _ in range(8):
        await engine.heartbeat(worker, [held(lease)])
        await maintain(engine, clock, 10)
    assert (await engine.reads.get(lease.id)).state is State.CANCELED


async def test_a_retry_waits_for_its_backoff_and_no_longer(engine: Engine, worker: str, clock: MovableClock) -> None:
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=40)
    await set_back(engine, clock)
    await Maintainer(engine, clock, SeededIds(1), every=10, retention=Retention()).sweep()  # though nothing runs
    assert await engine.claim(worker) == []
    clock.advance(39)
    assert await engine.claim(worker) == []
    clock.advance(1)
    assert [again.id for again in await engine.claim(worker)] == [lease.id]


async def test_an_ended_delay_stays_ended_and_an_explicit_run_at_is_kept(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    over = await engine.create(NewJob(type="echo", delay_seconds=3))
    later = await engine.create(NewJob(type="echo", run_at=clock.now() + timedelta(seconds=60)))
    await engine.maintenance.reap()
    clock.advance(6)
    await engine.maintenance.reap()  # the last that is known of the old clock; nothing has made the job claimable yet
    clock.advance(-HOUR)
    await maintain(engine, clock, 10)
    assert [lease.id for lease in await engine.claim(worker)] == [over.id]
    clock.advance(HOUR - 30)
    assert await engine.claim(worker) == []
    clock.advance(90)
    assert [lease.id for lease in await engine.claim(worker)] == [later.id]


async def test_a_clock_that_goes_back_half_a_minute_corrects_each_delayed_job_once(
    engine: Engine, worker: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the corrected times still lie in the last minute of the old clock; and a sweep takes a bounded number."""
    monkeypatch.setattr(set_back_module, "STEPS_MAX", 2)
    engine.ctx.limits = EngineLimits(sweep_batch=1)
    delayed = await engine.create_many([NewJob(type="echo", delay_seconds=100) for _ in range(3)])
    clock.advance(101)
    await engine.maintenance.reap()
    clock.advance(-30)
    for _ in range(2):
        await engine.maintenance.reap()
        clock.advance(1)
    engine.ctx.limits = EngineLimits()
    assert {lease.id for lease in await engine.claim(worker, limit=9)} == {job.id for job in delayed}
    [row] = await ask(engine, "SELECT swept_at FROM holdfast_sweeps WHERE name = 'reap'")
    assert row["swept_at"] <= clock.now(), "the correction came to its end"


async def test_an_orphan_is_accepted_without_waiting_for_the_hour(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    orphan = await engine.create(NewJob(type="echo", lifecycle="orchestration"), accept=False)
    await set_back(engine, clock)
    await Maintainer(engine, clock, SeededIds(1), every=10, retention=Retention()).sweep()
    assert [lease.id for lease in await engine.claim(worker)] == [orphan.id]


async def test_a_job_accepted_after_the_correction_keeps_its_run_at(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    later = await engine.create(NewJob(type="echo", lifecycle="orchestration", delay_seconds=1), accept=False)
    await set_back(engine, clock)
    assert await engine.maintenance.accept_orphans() == 1
    assert await engine.claim(worker) == []
    clock.advance(HOUR + 1)
    assert [lease.id for lease in await engine.claim(worker)] == [later.id]


async def test_a_job_accepted_by_maintenance_is_not_accepted_again_by_its_creator(
    engine: Engine, clock: MovableClock
) -> None:
    """The creator may still be alive: the job is accepted once."""
    made = await engine.create(NewJob(type="echo", lifecycle="orchestration"), accept=False)
    await set_back(engine, clock)
    assert await engine.maintenance.accept_orphans() == 1
    await engine.accept(made.id)
    assert [event.verb for event in await engine.reads.history(made.id)] == ["create", "accept"]


async def test_webhook_deliveries_that_wait_for_a_retry_are_sent_in_time(engine: Engine, clock: MovableClock) -> None:
    await engine.maintenance.reap()
    await ask(engine, _A_DELIVERY, id=_ID, next=clock.now() + timedelta(seconds=40), at=clock.now())
    await set_back(engine, clock)
    await maintain(engine, clock)
    [row] = await ask(engine, "SELECT next_at FROM holdfast_deliveries")
    assert row["next_at"] == clock.now() + timedelta(seconds=40)


_ID = "019b76da-a800-7001-b48f-c209128b2f33"
_A_DELIVERY = """
INSERT INTO holdfast_deliveries (id, webhook_id, tenant, job_id, seq, event, body, state, log, created_at, next_at)
VALUES (:id, :id, 'default', :id, 1, 'e', 'body', 'pending', '[]', :at, :next)
RETURNING id
"""


async def test_keyed_jobs_are_claimed_without_waiting_for_the_hour(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, *"aab")
    await set_back(engine, clock)
    await maintain(engine, clock)
    assert (await engine.polls.poll(worker)).due
    leases = await engine.claim(worker, limit=9)
    assert [lease.payload["domain"] for lease in leases] == ["a", "b"]
    await end(engine, worker, *leases)
    assert len(await engine.claim(worker, limit=9)) == 1


@pytest.mark.parametrize("name", ["type:crawl", "key:crawl"])
async def test_an_empty_rate_has_tokens_again_as_soon_as_without_a_step(
    engine: Engine, worker: str, clock: MovableClock, name: str
) -> None:
    await declare(engine, limit_key="domain")
    await limit(engine, name, rate="1/10s", burst=2)
    await crawl(engine, *"aaaaaaa")
    assert len(await engine.claim(worker, limit=9)) == 2
    await set_back(engine, clock)
    await maintain(engine, clock)
    assert await engine.claim(worker, limit=9) == [], "the correction gives no tokens"
    assert (await engine.polls.poll(worker)).next_in == pytest.approx(10)
    for seconds, jobs in ((9, 0), (1, 1), (10, 1), (20, 2)):
        clock.advance(seconds)
        assert len(await engine.claim(worker, limit=9)) == jobs


async def test_a_limit_that_was_just_set_is_counted_again_for_no_longer_than_a_minute(
    engine: Engine, clock: MovableClock
) -> None:
    await limit(engine, "type:crawl", concurrency=1)
    await set_back(engine, clock)
    await maintain(engine, clock)
    assert (await engine.polls.due_work(workers_kept=DAY, claims_kept=HOUR)).changed_limits
    clock.advance(61)
    assert not (await engine.polls.due_work(workers_kept=DAY, claims_kept=HOUR)).changed_limits


async def test_the_correction_is_logged_once_and_small_differences_are_ignored(
    engine: Engine, worker: str, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await run(engine, worker)
    await engine.maintenance.reap()
    clock.advance(-4)
    await engine.maintenance.reap()
    assert "set back" not in caplog.text
    clock.advance(-HOUR)
    for _ in range(3):
        await engine.maintenance.reap()
    assert caplog.text.count("the clock of the database was set back: corrected the times of 1 jobs") == 1
    assert (await engine.reads.get(lease.id)).state is State.RUNNING


# -- which rows are corrected -----------------------------------------------------------------------------------------


async def put(engine: Engine, clock: MovableClock, table: str, key: str, /, **values: Any) -> str:
    """Write into one row; a number stands for so many seconds from now."""
    told = {
        name: clock.now() + timedelta(seconds=value) if type(value) in (int, float) else value
        for name, value in values.items()
    }
    column = {"counted": "name"}.get(table, "id")
    setting = ", ".join(f"{name} = :{name}" for name in told)
    [row] = await ask(
        engine, f"UPDATE holdfast_{table} SET {setting} WHERE {column} = :key RETURNING {column}", key=key, **told
    )
    return str(row[0])


async def corrected(engine: Engine, query: Query, **params: Any) -> set[str]:
    return {str(row[0]) for row in await engine.store.write(lambda tx: tx.all(query, **params))}


async def sweeps(engine: Engine, clock: MovableClock, **ahead: int) -> None:
    await ask(engine, "DELETE FROM holdfast_sweeps WHERE TRUE RETURNING name")
    for name, seconds in ahead.items():
        at = clock.now() + timedelta(seconds=seconds)
        await ask(
            engine, "INSERT INTO holdfast_sweeps (name, swept_at) VALUES (:name, :at) RETURNING name", name=name, at=at
        )


async def waiting(engine: Engine, worker: str, clock: MovableClock, **times: Any) -> str:
    """A retry that waits."""
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=9)
    return await put(engine, clock, "jobs", lease.id, **times)


async def test_leases_set_back_corrects_running_jobs_with_a_future_time(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    wrong: list[dict[str, Any]] = [
        {"lease_expires_at": 36},
        {"claimed_at": 6},
        {"progress_at": 6},
        {"cancel_requested_at": 6},
    ]
    ids = {await put(engine, clock, "jobs", (await run(engine, worker)).id, **times) for times in wrong}
    await put(engine, clock, "jobs", (await run(engine, worker)).id, lease_expires_at=34, claimed_at=4, progress_at=4)
    await waiting(engine, worker, clock, claimed_at=6)
    assert await corrected(engine, q.leases_set_back, limit=9) == ids
    assert await corrected(engine, q.leases_set_back, limit=9) == set()


async def test_retries_set_back_corrects_retries_updated_in_the_future(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    retry = await waiting(engine, worker, clock, updated_at=6)
    await waiting(engine, worker, clock, updated_at=4)
    due = await waiting(engine, worker, clock, updated_at=6)
    await ask(engine, "UPDATE holdfast_jobs SET due = TRUE WHERE id = :id RETURNING id", id=due)
    delayed = await engine.create(NewJob(type="echo", delay_seconds=9))
    await put(engine, clock, "jobs", delayed.id, updated_at=6)
    assert await corrected(engine, q.retries_set_back, limit=9) == {retry}


async def test_delays_set_back_ends_delays_of_the_last_minute_of_the_old_clock(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await sweeps(engine, clock, reap=3600, other=9999)
    over = {
        await waiting(engine, worker, clock, run_at=3590, updated_at=-100),
        await waiting(engine, worker, clock, run_at=3590, updated_at=6),
    }
    for run_at, updated_at in ((3590, -30), (3601, -100), (3539, -100)):
        await waiting(engine, worker, clock, run_at=run_at, updated_at=updated_at)
    due = await waiting(engine, worker, clock, run_at=3590, updated_at=-100)
    await ask(engine, "UPDATE holdfast_jobs SET due = TRUE WHERE id = :id RETURNING id", id=due)
    ended = await engine.create(NewJob(type="echo"))
    clock.advance(3590)
    await engine.cancel(ended.id)
    clock.advance(-3590)
    assert await corrected(engine, q.delays_set_back, limit=9) == over
    assert await corrected(engine, q.delays_set_back, limit=9) == set()


async def test_delays_set_back_corrects_a_delay_once(engine: Engine, worker: str, clock: MovableClock) -> None:
    await sweeps(engine, clock, reap=30)
    over = await waiting(engine, worker, clock, run_at=20, updated_at=-100)
    assert await corrected(engine, q.delays_set_back, limit=9) == {over}
    assert await corrected(engine, q.delays_set_back, limit=9) == set()


async def test_workers_set_back_corrects_workers_with_a_future_time(engine: Engine, clock: MovableClock) -> None:
    heard, registered, right = [(await engine.workers.register()).id for _ in range(3)]
    await put(engine, clock, "workers", heard, last_heartbeat_at=6)
    await put(engine, clock, "workers", registered, registered_at=6)
    await put(engine, clock, "workers", right, last_heartbeat_at=4, registered_at=4)
    assert await corrected(engine, q.workers_set_back) == {heard, registered}


async def test_turns_tokens_and_limits_set_back_correct_future_times(engine: Engine, clock: MovableClock) -> None:
    for number, seconds in enumerate((4, 6, 7, 6), 1):
        at = clock.now() + timedelta(seconds=seconds)
        for insert in _LIMITED_ROWS:
            await ask(engine, insert, name=f"name-{number}", number=-number, at=at)
    assert [len(await corrected(engine, q.turns_set_back, limit=2)) for _ in range(3)] == [2, 1, 0]
    assert [len(await corrected(engine, q.tokens_set_back, limit=2)) for _ in range(3)] == [2, 1, 0]
    assert await corrected(engine, q.limits_set_back) == {"name-2", "name-3", "name-4"}
    assert await corrected(engine, q.limits_set_back) == set()


_LIMITED_ROWS = (
    "INSERT INTO holdfast_key_lanes (lane, key_lane, turn_at) VALUES (1, :number, :at) RETURNING lane",
    "INSERT INTO holdfast_limit_tokens (bucket, tokens, filled_at, full_at) VALUES (:name, 0, :at, :at) "
    "RETURNING bucket",
    "INSERT INTO holdfast_limits (name, concurrency, updated_at) VALUES (:name, 1, :at) RETURNING name",
)


async def test_counts_sweeps_and_grace_set_back_correct_future_times(engine: Engine, clock: MovableClock) -> None:
    insert = (
        "INSERT INTO holdfast_counted (name, taken_at, asked_at, figures) VALUES (:name, :at, :at, '') RETURNING name"
    )
    for name in ("taken", "asked", "right"):
        await ask(engine, insert, name=name, at=clock.now())
    await put(engine, clock, "counted", "taken", taken_at=6)
    await put(engine, clock, "counted", "asked", asked_at=6)
    await put(engine, clock, "counted", "right", taken_at=4, asked_at=4)
    assert await corrected(engine, q.counts_set_back) == {"taken", "asked"}
    await sweeps(engine, clock, reap=4, other=9999)
    assert await corrected(engine, q.sweeps_set_back) == set()
    await sweeps(engine, clock, reap=6, other=9999)
    assert await corrected(engine, q.sweeps_set_back) == {"reap"}
    assert await corrected(engine, q.grace_set_back) == {"reap"}


async def test_deliveries_set_back_moves_only_pending_deliveries(engine: Engine, clock: MovableClock) -> None:
    await sweeps(engine, clock, reap=3600, other=9999)
    await corrected(engine, q.sweeps_set_back)
    ids = [f"019b76da-a800-7001-b48f-00000000000{number}" for number in range(3)]
    for id_, seconds in zip(ids, (1, 0, 1), strict=True):
        at = clock.now()
        await ask(engine, _A_DELIVERY, id=id_, next=at + timedelta(seconds=seconds), at=at)
    await ask(engine, "UPDATE holdfast_deliveries SET state = 'delivered' WHERE id = :id RETURNING id", id=ids[2])
    assert await corrected(engine, q.deliveries_set_back) == {ids[0]}


async def test_orphans_are_created_jobs_that_are_old_or_in_the_future(engine: Engine, clock: MovableClock) -> None:
    made = await engine.create_many([NewJob(type="echo", lifecycle="orchestration")] * 5, accept=False)
    for job, seconds in zip(made, (-61, -59, 0, 4, 6), strict=True):
        await put(engine, clock, "jobs", job.id, created_at=seconds)
    running = await engine.create(NewJob(type="echo"))
    await put(engine, clock, "jobs", running.id, created_at=6)
    found = await corrected(engine, q.orphans, seconds=60.0, not_ours=[], limit=9)
    assert found == {made[0].id, made[4].id}


@pytest.mark.parametrize(("seconds", "seen"), [(4, False), (6, True)])
async def test_due_work_reports_orphans_created_in_the_future(
    engine: Engine, clock: MovableClock, seconds: int, seen: bool
) -> None:
    """Though the oldest of those that wait is not to be accepted yet."""
    _, ahead = await engine.create_many([NewJob(type="echo", lifecycle="orchestration")] * 2, accept=False)
    queued = await engine.create(NewJob(type="echo"))
    await put(engine, clock, "jobs", ahead.id, created_at=seconds)
    await put(engine, clock, "jobs", queued.id, created_at=6)
    assert (await engine.polls.due_work(workers_kept=DAY, claims_kept=HOUR)).orphans is seen
