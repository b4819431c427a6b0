"""`jobs_of(app)`: the waiting jobs of a test database, and the clock of the test."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from holdfast import App, Context, Snooze
from holdfast.errors import HoldfastError, UnknownName
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.testing import Jobs, jobs_of


async def test_enqueued_lists_jobs_until_they_have_run(app: App, jobs: Jobs) -> None:
    @app.job("SEND_EMAIL")
    async def send_email(to: str, subject: str) -> None: ...

    first = await send_email.enqueue(to="a@example.com", subject="Hi")
    second = await send_email.enqueue(to="b@example.com", subject="Hi")
    assert [job.id for job in jobs.enqueued()] == [first.id, second.id]
    assert [job.id for job in jobs.enqueued("SEND_EMAIL", subject="Hi")] == [first.id, second.id]
    assert [job.id for job in jobs.enqueued(send_email, to="b@example.com")] == [second.id]
    assert jobs.enqueued(send_email, to="c@example.com") == []
    await jobs.drain()
    assert jobs.enqueued() == []


async def test_enqueued_matches_payloads_as_python_values_or_json(app: App, jobs: Jobs) -> None:
    class Address(msgspec.Struct):
        street: str

    @app.job()
    async def ship(to: Address, at: datetime, order: UUID) -> None: ...

    at, order = datetime(2026, 5, 1, tzinfo=UTC), UUID(int=7)
    await ship.enqueue(Address("Main St"), at, order)
    assert jobs.enqueued(ship, to=Address("Main St"), at=at, order=order)
    assert jobs.enqueued(ship, to={"street": "Main St"}, at="2026-05-01T00:00:00Z", order=str(order))
    assert not jobs.enqueued(ship, to=Address("Side St"))


async def test_enqueued_includes_delayed_and_retrying_jobs(app: App, jobs: Jobs) -> None:
    @app.job()
    async def fail() -> None:
        raise ValueError

    await fail.enqueue()
    await fail.options(delay=60).enqueue()
    await jobs.drain(raise_errors=False)
    assert [job.state for job in jobs.enqueued(fail)] == [State.RETRYING, State.QUEUED]


async def test_enqueued_lists_more_jobs_than_one_page_in_order(app: App, jobs: Jobs) -> None:
    @app.job()
    async def count(number: int) -> None: ...

    await count.enqueue_many([{"number": number} for number in range(1203)])
    assert [job.payload["number"] for job in jobs.enqueued(count)] == list(range(1203))
    assert len(await jobs.drain()) == 1203


def test_an_unknown_job_type_or_argument_in_enqueued_is_an_error(app: App, jobs: Jobs) -> None:
    @app.job("SEND_EMAIL")
    async def send_email(to: str) -> None: ...

    with pytest.raises(UnknownName, match="did you mean 'SEND_EMAIL'"):
        jobs.enqueued("SEND_EMIAL")
    with pytest.raises(UnknownName, match="did you mean 'to'"):
        jobs.enqueued("SEND_EMAIL", too="a@example.com")


async def test_jobs_of_another_app_are_listed_and_not_run(app: App, jobs: Jobs) -> None:
    await app.create([NewJob(type="elsewhere", payload={"number": 1})])
    assert await jobs.drain(until_done=True) == []
    assert jobs.enqueued("elsewhere", number=1)
    assert not jobs.enqueued("elsewhere", number=2)


async def test_the_clock_stands_still_until_the_test_advances_it(app: App, jobs: Jobs) -> None:
    @app.job()
    async def later() -> None: ...

    before = jobs.clock.now()
    job = await later.options(delay=3600).enqueue()
    assert await jobs.drain() == []
    jobs.clock.advance(minutes=59, seconds=59)
    assert await jobs.drain() == []
    jobs.clock.advance(1)
    assert len(await jobs.drain()) == 1
    assert jobs.get(job).finished_at == before + timedelta(hours=1)


async def test_jobs_of_accepts_a_start_time(app: App) -> None:
    start = datetime(2030, 2, 28, 12, tzinfo=UTC)
    with jobs_of(app, start=start) as jobs:
        jobs.clock.advance(days=1, hours=1)
        assert jobs.clock.now() == datetime(2030, 3, 1, 13, tzinfo=UTC)


async def test_a_run_at_from_the_system_clock_is_due_as_expected(app: App, jobs: Jobs) -> None:
    @app.job()
    async def remind() -> None: ...

    await remind.options(run_at=datetime.now(UTC)).enqueue()
    assert len(await jobs.drain()) == 1
    await remind.options(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue()
    assert await jobs.drain() == []
    jobs.clock.advance(hours=1)
    assert len(await jobs.drain()) == 1


async def test_until_done_runs_every_retry_and_raises_no_error_that_was_retried(app: App, jobs: Jobs) -> None:
    @app.job(backoff_base_seconds=600)
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    job = await flaky.options(delay=3600).enqueue()
    ran = await jobs.drain(until_done=True)
    assert [each.verb for each in ran] == ["fail", "fail", "complete"]
    assert isinstance(ran[0].error, ConnectionError)
    assert await job.result(timeout=60) == 3


async def test_until_done_raises_the_last_error_of_a_dead_job(app: App, jobs: Jobs) -> None:
    tries = []

    @app.job(max_attempts=3)
    async def fail(ctx: Context) -> None:
        tries.append(ctx.attempt)
        raise ValueError(f"try {ctx.attempt}")

    job = await fail.enqueue()
    with pytest.raises(ValueError, match="try 3"):
        await jobs.drain(until_done=True)
    assert tries == [1, 2, 3]
    assert jobs.get(job).status == "FAILED"


async def test_drain_of_jobs_that_never_end_raises(app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.testing.source.MOVES_MAX", 20)

    @app.job()
    async def poll() -> Snooze:
        return Snooze(30)

    await poll.enqueue()
    with pytest.raises(HoldfastError, match=r"poll \(21 times\)") as raised:
        await jobs.drain(until_done=True)
    assert raised.value.code == "drain_did_not_finish"
