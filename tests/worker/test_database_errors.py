"""A worker whose database is unreachable or whose answers are lost."""

from holdfast import App
from holdfast.errors import StoreUnavailable
from tests.worker.in_process import everything_done, is_done, until, verbs, working


class TestDatabaseErrors:
    async def test_results_are_delivered_after_an_outage(self, app: App) -> None:
        @app.job()
        async def quick(number: int) -> int:
            return number

        async with working(app) as at_work:
            at_work.source.broken["complete"] = StoreUnavailable("away")
            jobs = await quick.enqueue_many([{"number": number} for number in range(20)])
            await until(lambda: sum(verb == "complete" for verb, _ in at_work.source.calls) >= 3)
            assert {await job.status() for job in jobs} == {"RUNNING"}
            at_work.source.broken.clear()
            assert [await job.result(60) for job in jobs] == list(range(20))

    async def test_claims_continue_after_an_outage(self, app: App) -> None:
        @app.job()
        async def quick() -> str:
            return "ran"

        async with working(app) as at_work:
            at_work.source.broken["claim"] = StoreUnavailable("away")
            job = await quick.enqueue()
            await until(lambda: sum(verb == "claim" for verb, _ in at_work.source.calls) >= 3)
            at_work.source.broken.clear()
            assert await job.result(60) == "ran"

    async def test_jobs_of_a_claim_whose_answer_was_lost_are_run(self, app: App) -> None:
        @app.job()
        async def quick() -> str:
            return "ran"

        job = await quick.enqueue()
        engine = await app.engine()
        async with working(app) as at_work:
            at_work.source.lost_answers.add("claim")
            second = await quick.enqueue()
            await until(lambda: "claim" not in at_work.source.lost_answers)
            assert [await job.result(60), await second.result(60)] == ["ran", "ran"]
        outcomes = [attempt.outcome for made in (job, second) for attempt in await engine.reads.attempts(made.id)]
        assert outcomes == ["succeeded", "succeeded"]

    async def test_a_completion_whose_answer_was_lost_counts_once(self, app: App) -> None:
        @app.job()
        async def quick() -> str:
            return "ran"

        async with working(app) as at_work:
            at_work.source.lost_answers.add("complete")
            job = await quick.enqueue()
            assert await job.result(60) == "ran"
            await until(lambda: len(at_work.worker.slots.executions) == 0)
        assert (await verbs(app, job.id)).count("complete") == 1

    async def test_a_worker_claims_no_more_jobs_than_its_lease_table_holds(self, app: App) -> None:
        @app.job()
        async def quick() -> None: ...

        async with working(app) as at_work:
            at_work.source.broken["complete"] = StoreUnavailable("away")
            jobs = await quick.enqueue_many([{}] * 5000)
            await until(lambda: not at_work.worker.slots.wanted(), seconds=60)
            at_work.source.broken.clear()
            await until(lambda: is_done(app, jobs[-1].id), seconds=60)
            await until(lambda: everything_done(app), seconds=60)
