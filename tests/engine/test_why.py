"""why: the claim's conditions for one job, clause by clause; the first that does not hold is the answer."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, Rejection
from holdfast.engine.reads.why import unserved
from holdfast.lifecycle import Lifecycles, State
from holdfast.model import NewJob
from tests.engine.steps import bring, run


async def answer(engine: Engine, job_id: str) -> tuple[str, str] | None:
    """The first clause that does not hold, or None: nothing is in the way."""
    clauses = await engine.reads.why(job_id)
    return next(((clause.name, clause.says) for clause in clauses if not clause.holds), None)


async def test_why_reports_no_obstacle_for_a_claimable_job(engine: Engine, worker: str) -> None:
    job = await engine.create(NewJob(type="n"))

    clauses = await engine.reads.why(job.id)

    assert [clause.name for clause in clauses] == ["state", "time", "queue", "workers", "turn"]
    assert all(clause.holds for clause in clauses)
    assert len(await engine.claim(worker)) == 1


async def test_why_reports_the_state_of_a_job_that_is_not_waiting(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """In the lifecycle's own words; nothing else matters then."""
    says = {}
    for state in (State.CREATED, State.RUNNING, State.SUCCEEDED, State.DEAD):
        job = await bring(engine, worker, Lifecycles()["orchestration"], state)
        assert len(await engine.reads.why(job.id)) == 1
        says[state] = await answer(engine, job.id)

    assert says == {
        State.CREATED: ("state", "it is CREATED: it has not been accepted yet"),
        State.RUNNING: ("state", f"it is RUNNING: attempt 1 is with worker {worker} until 00:00:30 UTC"),
        State.SUCCEEDED: ("state", "it is SUCCESS, which is final (done)"),
        State.DEAD: ("state", "it is DEAD, which is final (E_BROUGHT)"),
    }


async def test_why_reports_a_cancel_request(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    await engine.cancel(lease.id)
    found = await answer(engine, lease.id)
    assert found is not None
    assert found[1].endswith("; a cancel was requested")


async def test_why_reports_the_outcome_of_the_last_attempt(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E_DISK", retry_after_seconds=0)
    state = (await engine.reads.why(lease.id))[0]
    assert (state.holds, state.says) == (True, "it is retrying, attempt 1 of 5 is over (E_DISK)")


async def test_why_reports_a_delay(engine: Engine, worker: str, clock: MovableClock) -> None:
    job = await engine.create(NewJob(type="n", delay_seconds=90))
    assert await answer(engine, job.id) == ("time", "it waits 90 s more, until 2026-01-01 00:01:30 UTC")
    clock.advance(90)
    assert await answer(engine, job.id) == ("due", "it is due; the next claim or maintenance run makes it claimable")
    await engine.maintenance.requeue_due()
    assert await answer(engine, job.id) is None


async def test_why_reports_a_paused_queue(engine: Engine, worker: str) -> None:
    job = await engine.create(NewJob(type="n", queue="mail"))
    await engine.queues.pause("mail", tenant="another tenant")
    assert await answer(engine, job.id) is None
    await engine.queues.pause("mail", by="ann")
    assert await answer(engine, job.id) == ("queue", "queue 'mail' is paused since 00:00:00 UTC by ann")


async def test_why_reports_that_no_worker_is_registered(engine: Engine) -> None:
    job = await engine.create(NewJob(type="n"))
    assert await answer(engine, job.id) == ("workers", "none of 0 registered workers is enabled and alive")


@pytest.mark.parametrize("trouble", ["disabled", "offline"])
async def test_why_reports_that_no_worker_is_enabled_and_alive(
    engine: Engine, worker: str, clock: MovableClock, trouble: str
) -> None:
    job = await engine.create(NewJob(type="n"))
    if trouble == "disabled":
        await engine.workers.disable(worker)
    else:
        clock.advance(90)
        await engine.maintenance.mark_silent_workers()
    assert await answer(engine, job.id) == ("workers", "the 1 registered worker is not enabled and alive")


async def test_why_reports_missing_capabilities(engine: Engine, worker: str) -> None:
    job = await engine.create(NewJob(type="n", requires=["gpu", "codecs:h264"]))
    assert await answer(engine, job.id) == ("capabilities", "no live worker offers codecs:h264, gpu")


async def test_why_reports_that_no_worker_serves_the_tenant(engine: Engine) -> None:
    await engine.workers.register(tenants=["other"])
    job = await engine.create(NewJob(type="n"))
    assert await answer(engine, job.id) == ("tenant", "no live worker is for tenant 'default'")


async def test_why_reports_that_no_worker_runs_the_job_type(engine: Engine) -> None:
    """A worker may say which types it runs; one that says nothing, or nothing that can be read, may run any."""
    await engine.workers.register(metadata={"jobTypes": ["mail", "report"]})
    await engine.workers.register(metadata={"jobTypes": []})
    job, mail = await engine.create(NewJob(type="n")), await engine.create(NewJob(type="mail"))
    assert await answer(engine, job.id) == ("type", "no live worker runs jobs of type 'n'")
    assert await answer(engine, mail.id) is None
    await engine.workers.register(metadata={"jobTypes": "n"})
    assert await answer(engine, job.id) is None


async def test_unserved_lists_lanes_that_no_live_worker_can_take(engine: Engine) -> None:
    await engine.workers.register(
        tenants=["default"], metadata={"jobTypes": ["mail", "film"]}, capabilities={"gpu": True}
    )
    for new in (
        NewJob(type="mail"),
        NewJob(type="film", requires=["gpu"]),
        NewJob(type="film", requires=["gpu", "hdr"]),
        NewJob(type="mail", tenant="acme", queue="post"),
        NewJob(type="report", queue="post"),
    ):
        await engine.create(new)
    found = await engine.store.read(unserved)
    assert [(wanted.queue, wanted.type, wanted.requires, clause.name) for wanted, clause in found] == [
        ("default", "film", ["gpu", "hdr"], "capabilities"),
        ("post", "mail", [], "tenant"),
        ("post", "report", [], "type"),
    ]


async def test_why_reports_that_others_defer_to_a_preferred_worker(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-33: others leave it to the better worker for a while, and then no longer."""
    job = await engine.create(NewJob(type="n", prefers=["gpu"]))

    async def preference() -> tuple[bool, str]:
        [clause] = [clause for clause in await engine.reads.why(job.id) if clause.name == "preference"]
        return clause.holds, clause.says

    assert await preference() == (True, "it prefers gpu: 0 such workers are alive")
    await engine.workers.register(capabilities={"gpu": True})
    clock.advance(20)
    alive = "it prefers gpu: 1 such worker is alive"
    assert await preference() == (False, f"{alive}, and others leave it to it for 40 s more")
    clock.advance(40)
    assert await preference() == (True, alive)


async def test_why_reports_the_number_of_jobs_ahead_in_the_lane(engine: Engine, worker: str) -> None:
    """Behind what is more urgent or older in its lane; what waits in other lanes or is delayed does not count."""
    for other in (
        NewJob(type="n"),
        NewJob(type="n"),
        NewJob(type="n", delay_seconds=60),
        NewJob(type="other"),
        NewJob(type="n", priority=-1),
    ):
        await engine.create(other)
    job = await engine.create(NewJob(type="n"))
    await engine.create(NewJob(type="n", priority=1))
    await engine.create(NewJob(type="n"))

    assert await answer(engine, job.id) == ("turn", "3 jobs like it are ahead")


async def test_why_reports_one_job_ahead(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="n"))
    assert await answer(engine, (await engine.create(NewJob(type="n"))).id) == ("turn", "1 job like it is ahead")


async def test_why_reports_the_code_of_a_rejection(engine: Engine) -> None:
    job = await engine.create(NewJob(type="n", lifecycle="generation"))
    await engine.reject_queued(Rejection(id=job.id, token="", code="SAFE_BLOCK"))
    assert await answer(engine, job.id) == ("state", "it is rejected, which is final (SAFE_BLOCK)")


async def test_why_reports_a_resumed_queue_as_open(engine: Engine, worker: str) -> None:
    job = await engine.create(NewJob(type="n"))
    await engine.queues.pause("default")
    await engine.queues.resume("default")
    [clause] = [clause for clause in await engine.reads.why(job.id) if clause.name == "queue"]
    assert (clause.holds, clause.says) == (True, "queue 'default' is open")
