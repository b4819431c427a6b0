"""The database's clock is set back by an hour: work goes on, and what was lost is recovered, as if it had not been."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, Retention
from holdfast.ids import SeededIds
from holdfast.lifecycle import State
from holdfast.loops import Maintenance
from holdfast.model import NewJob
from tests.engine.steps import ask, held, run

HOUR = 3600.0
ALLOWED_SECONDS = 108  # three times as long as without a step: lease, sweep and a second


async def maintain(engine: Engine, clock: MovableClock, seconds: float = 0) -> None:
    """Let time pass with a sweep every ten seconds; at least one."""
    await engine.reap()
    while seconds > 0:
        clock.advance(min(10, seconds))
        seconds -= 10
        await engine.reap()


async def set_back(engine: Engine, clock: MovableClock) -> None:
    await maintain(engine, clock)
    clock.advance(-HOUR)


async def test_a_job_that_waits_in_its_queue_is_claimed_at_once(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    made = await engine.create(NewJob(type="echo"))
    clock.advance(-HOUR)
    assert [lease.id for lease in await engine.claim(worker)] == [made.id]


async def test_a_job_that_prefers_another_worker_is_not_kept_back_for_the_hour(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    preferred = await engine.register(capabilities={"gpu": True})
    await engine.heartbeat(preferred.id, [])
    made = await engine.create(NewJob(type="echo", prefers=["gpu"]))
    assert await engine.claim(worker) == []
    await set_back(engine, clock)
    assert [lease.id for lease in await engine.claim(worker)] == [made.id]


async def test_the_job_of_a_lost_worker_is_recovered_and_that_of_a_living_one_stays(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    other = (await engine.register()).id
    lost, alive = await run(engine, worker), await run(engine, other)
    await set_back(engine, clock)
    for _ in range(ALLOWED_SECONDS // 10):
        await maintain(engine, clock, 10)
        assert (await engine.heartbeat(other, [held(alive)])).lost == []
    assert [(await engine.get(lease.id)).state for lease in (lost, alive)] == [State.RETRYING, State.RUNNING]
    assert [lease.id for lease in await engine.claim(worker)] == [lost.id]


async def test_a_video_whose_worker_fell_silent_is_recovered(engine: Engine, worker: str, clock: MovableClock) -> None:
    """Where a lease ends only once the worker is offline: it was heard from now at the latest."""
    policy = {"lease_seconds": 30, "heartbeat_seconds": 10, "offline_seconds": 60}
    lost = await run(engine, worker, lifecycle="transcode", policy=policy)
    await engine.heartbeat(worker, [held(lost)])
    await set_back(engine, clock)
    await maintain(engine, clock, ALLOWED_SECONDS)
    assert (await engine.get(lost.id)).reason == "lease_expired"


async def test_a_grace_that_was_in_force_does_not_last_for_the_hour(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await engine.reap()
    lost = await run(engine, worker)
    clock.advance(60)
    assert await engine.reap() == [], "the grace begins"
    await set_back(engine, clock)
    await maintain(engine, clock, ALLOWED_SECONDS)
    assert (await engine.get(lost.id)).state is State.RETRYING


@pytest.mark.parametrize("policy", [{"max_runtime_seconds": 50}, {"no_progress_seconds": 50}])
async def test_a_job_that_runs_for_too_long_is_ended(
    engine: Engine, worker: str, clock: MovableClock, policy: dict[str, Any]
) -> None:
    lease = await run(engine, worker, policy=policy)
    await set_back(engine, clock)
    for _ in range(8):
        await engine.heartbeat(worker, [held(lease)])
        await maintain(engine, clock, 10)
    assert (await engine.get(lease.id)).state is State.RETRYING


async def test_a_cancel_that_is_not_obeyed_is_carried_out(engine: Engine, worker: str, clock: MovableClock) -> None:
    lease = await run(engine, worker, policy={"cancel_grace_seconds": 50})
    await engine.cancel(lease.id)
    await set_back(engine, clock)
    for _ in range(8):
        await engine.heartbeat(worker, [held(lease)])
        await maintain(engine, clock, 10)
    assert (await engine.get(lease.id)).state is State.CANCELED


async def test_a_retry_waits_for_its_backoff_and_no_longer(engine: Engine, worker: str, clock: MovableClock) -> None:
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=40)
    await set_back(engine, clock)
    await Maintenance(engine, clock, SeededIds(1), every=10, retention=Retention()).sweep()  # though nothing runs
    assert await engine.claim(worker) == []
    clock.advance(39)
    assert await engine.claim(worker) == []
    clock.advance(1)
    assert [again.id for again in await engine.claim(worker)] == [lease.id]


async def test_a_delay_that_was_over_is_over_and_a_time_that_was_given_is_kept(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    over = await engine.create(NewJob(type="echo", delay_seconds=3))
    later = await engine.create(NewJob(type="echo", run_at=clock.now() + timedelta(seconds=60)))
    await engine.reap()
    clock.advance(6)
    await engine.reap()  # the last that is known of the old clock; nothing has made the job claimable yet
    clock.advance(-HOUR)
    await maintain(engine, clock, 10)
    assert [lease.id for lease in await engine.claim(worker)] == [over.id]
    clock.advance(HOUR - 30)
    assert await engine.claim(worker) == []
    clock.advance(90)
    assert [lease.id for lease in await engine.claim(worker)] == [later.id]


async def test_webhooks_that_waited_for_their_next_try_are_sent_in_time(engine: Engine, clock: MovableClock) -> None:
    await engine.reap()
    await ask(engine, _A_DELIVERY, id=_ID, next=clock.now() + timedelta(seconds=40), at=clock.now())
    await set_back(engine, clock)
    await maintain(engine, clock)
    [row] = await ask(engine, "SELECT next_at FROM deliveries")
    assert row["next_at"] == clock.now() + timedelta(seconds=40)


_ID = "019b76da-a800-7001-b48f-c209128b2f33"
_A_DELIVERY = """
INSERT INTO deliveries (id, webhook_id, tenant, job_id, seq, event, body, state, log, created_at, next_at)
VALUES (:id, :id, 'default', :id, 1, 'e', 'body', 'pending', '[]', :at, :next)
RETURNING id
"""


async def test_it_is_said_once_and_nothing_happens_where_clocks_differ_a_little(
    engine: Engine, worker: str, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await run(engine, worker)
    await engine.reap()
    clock.advance(-4)
    await engine.reap()
    assert "set back" not in caplog.text
    clock.advance(-HOUR)
    for _ in range(3):
        await engine.reap()
    assert caplog.text.count("the database's clock was set back: corrected the times of 1 jobs") == 1
    assert (await engine.get(lease.id)).state is State.RUNNING
