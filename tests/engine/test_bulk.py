"""The operator's verbs over many jobs at once: an answer or a refusal for each, and the others are done."""

from holdfast.engine import Created, Engine
from holdfast.errors import Conflict, HoldfastError, IllegalMove, NotFound, Refused
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.store import Tx
from tests.engine.hooking import adopt, guard

NOBODY = "00000000-0000-7000-8000-000000000000"


async def test_many_are_canceled_and_each_refusal_says_why(engine: Engine, worker: str) -> None:
    waiting, running, ended, firm = [
        job.id
        for job in await engine.create_many(
            [NewJob(type=name, lifecycle="images" if name == "firm" else None) for name in "abc"]
            + [NewJob(type="firm", lifecycle="images")]
        )
    ]
    for kind, job_id in (("b", running), ("c", ended)):
        [lease] = await engine.claim(worker, types=[kind])
        assert lease.id == job_id
        if job_id == ended:
            await engine.complete(worker, lease.id, lease.token)

    answers = await engine.cancel_many([waiting, running, ended, firm, NOBODY, "no id"])

    assert [type(answer).__name__ for answer in answers] == [
        *("Canceling", "Canceling", "Conflict", "IllegalMove", "NotFound", "NotFound")
    ]
    assert isinstance(answers[2], Conflict)
    assert isinstance(answers[3], IllegalMove)
    states = [(await engine.reads.get(job_id)).state for job_id in (waiting, running, ended, firm)]
    assert states == [State.CANCELED, State.RUNNING, State.SUCCEEDED, State.QUEUED]


async def test_a_guard_that_refuses_one_does_not_stop_the_others(engine: Engine) -> None:
    jobs = [job.id for job in await engine.create_many([NewJob(type="a"), NewJob(type="b"), NewJob(type="a")])]

    @guard(engine, "cancel", job_type="b")
    async def no(_tx: Tx, _job: object) -> None:
        raise Refused("b stays")

    await adopt(engine, "b")

    answers = await engine.cancel_many(jobs)
    assert [isinstance(answer, HoldfastError) for answer in answers] == [False, True, False]
    assert [(await engine.reads.get(job)).state for job in jobs] == [State.CANCELED, State.QUEUED, State.CANCELED]


async def test_many_are_redriven_and_requeued(engine: Engine, worker: str) -> None:
    jobs = [job.id for job in await engine.create_many([NewJob(type="a") for _ in range(3)])]
    for lease in await engine.claim(worker, limit=3):
        await engine.fail(worker, lease.id, lease.token, "boom")
    requeued = await engine.requeue_many([*jobs[:2], NOBODY])
    assert isinstance(requeued[2], NotFound)
    assert [(await engine.reads.get(job)).state for job in jobs] == [State.QUEUED, State.QUEUED, State.RETRYING]

    await engine.cancel_many(jobs)
    again = await engine.redrive_many([*jobs, NOBODY])
    fresh = [answer.id for answer in again if isinstance(answer, Created)]
    assert [(await engine.reads.get(job)).redrive_of for job in fresh] == jobs
    assert isinstance(again[3], NotFound)
