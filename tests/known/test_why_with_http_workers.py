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


async def test_why_ignores_an_http_worker_that_never_claimed(served: Served) -> None:
    job = await served.engine.create(NewJob(type="render"))
    await served.register(name="encoder")
    assert await answer(served, job.id) == "the 1 live worker has not claimed yet"


async def test_why_ignores_an_http_worker_that_claims_other_types(served: Served) -> None:
    job = await served.engine.create(NewJob(type="render"))
    mailer = await served.register(name="mailer")
    await claims(served, mailer["apiKey"], jobTypes=["mail"])
    assert await answer(served, job.id) == "no live worker runs jobs of type 'render'"
    assert (await served.engine.workers.get(mailer["workerId"])).job_types == ["mail"]
    await claims(served, mailer["apiKey"], jobTypes=["render"], queues=["films"])  # another process with this key
    assert await answer(served, job.id) == "no live worker that runs 'render' claims from queue 'default'"


async def test_why_counts_an_http_worker_that_claims_any_type(served: Served) -> None:
    await served.engine.queues.pause("default")
    job = await served.engine.create(NewJob(type="render"))
    anything = await served.register(name="anything")
    await claims(served, anything["apiKey"])
    await served.engine.queues.resume("default")
    assert await answer(served, job.id) is None


async def test_why_ignores_an_http_worker_whose_key_is_bound_to_other_queues(served: Served) -> None:
    job = await served.engine.create(NewJob(type="render"))
    mailer = await served.register(name="mailer", queues=["mail"])
    await claims(served, mailer["apiKey"])
    assert await answer(served, job.id) == "no live worker that runs 'render' claims from queue 'default'"


async def test_claim_scopes_are_recorded_per_worker(served: Served) -> None:
    mailer, renderer = [await served.register(name=name) for name in ("mailer", "renderer")]
    await claims(served, mailer["apiKey"], jobTypes=["mail"])
    await claims(served, renderer["apiKey"], jobTypes=["render"])
    asked = [(await served.engine.workers.get(worker["workerId"])).job_types for worker in (mailer, renderer)]
    assert asked == [["mail"], ["render"]]
