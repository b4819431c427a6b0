"""Jobs that are canceled at the same time: an answer or a refusal for each."""

import asyncio

from holdfast.engine import Engine
from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import State
from holdfast.model import NewJob

UNKNOWN_JOB = "00000000-0000-7000-8000-000000000000"


async def test_concurrent_cancels_answer_or_refuse_each_job_separately(engine: Engine, worker: str) -> None:
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

    answers = await asyncio.gather(
        *map(engine.cancel, (waiting, running, ended, firm, UNKNOWN_JOB, "no id")), return_exceptions=True
    )

    assert [type(answer).__name__ for answer in answers] == [
        *("Canceling", "Canceling", "Conflict", "IllegalMove", "NotFound", "NotFound")
    ]
    assert isinstance(answers[2], Conflict)
    assert isinstance(answers[3], IllegalMove)
    states = [(await engine.reads.get(job_id)).state for job_id in (waiting, running, ended, firm)]
    assert states == [State.CANCELED, State.RUNNING, State.SUCCEEDED, State.QUEUED]
