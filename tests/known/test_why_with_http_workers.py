"""`why` once workers over HTTP are registered: they run what they ask for, not "any type"."""

from holdfast.model import NewJob
from tests.server.conftest import served
from tests.server.steps import Served, bearer

__all__ = ["served"]


async def answer(served: Served, job_id: str) -> str | None:
    clauses = await served.engine.reads.why(job_id)
    return next((clause.says for clause in clauses if not clause.holds), None)


async def claims(served: Served, key: str, **body: object) -> None:
    answer = await served.http.post("/api/worker/claim", json=body, headers=bearer(key))
    assert answer.status_code in (200, 204), answer.text


async def test_a_worker_that_was_registered_and_never_started_takes_nothing(served: Served) -> None:
    job = await served.engine.create(NewJob(type="render"))
    await served.register(name="encoder")
    assert await answer(served, job.id) == "the 1 live worker has not claimed yet"


async def test_a_worker_that_asks_for_other_types_does_not_count(served: Served) -> None:
    job = await served.engine.create(NewJob(type="render"))
    mailer = await served.register(name="mailer")
    await claims(served, mailer["apiKey"], jobTypes=["mail"])
    assert await answer(served, job.id) == "no live worker runs jobs of type 'render'"
    assert (await served.engine.workers.get(mailer["workerId"])).job_types == ["mail"]
    await claims(served, mailer["apiKey"], jobTypes=["render"], queues=["films"])  # another process with this key
    assert await answer(served, job.id) == "no live worker that runs 'render' claims from queue 'default'"


async def test_a_worker_that_asks_for_any_type_may_take_it(served: Served) -> None:
    await served.engine.queues.pause("default")
    job = await served.engine.create(NewJob(type="render"))
    anything = await served.register(name="anything")
    await claims(served, anything["apiKey"])
    await served.engine.queues.resume("default")
    assert await answer(served, job.id) is None


async def test_a_key_bound_to_other_queues_does_not_count(served: Served) -> None:
    job = await served.engine.create(NewJob(type="render"))
    mailer = await served.register(name="mailer", queues=["mail"])
    await claims(served, mailer["apiKey"])
    assert await answer(served, job.id) == "no live worker that runs 'render' claims from queue 'default'"


async def test_what_one_worker_asks_for_is_noted_for_that_worker_only(served: Served) -> None:
    mailer, renderer = [await served.register(name=name) for name in ("mailer", "renderer")]
    await claims(served, mailer["apiKey"], jobTypes=["mail"])
    await claims(served, renderer["apiKey"], jobTypes=["render"])
    asked = [(await served.engine.workers.get(worker["workerId"])).job_types for worker in (mailer, renderer)]
    assert asked == [["mail"], ["render"]]
