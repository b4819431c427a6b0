"""One result that cannot be stored must not hold up the results of all other jobs."""

import asyncio

import asyncpg
import pytest

from holdfast import App
from holdfast.settings import Settings
from holdfast.store import postgres
from tests.worker.in_process import until, working


@pytest.mark.postgres
async def test_a_batch_of_results_that_times_out_is_sent_in_smaller_batches(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client holds a lock on one row: the batch timed out and was repeated unchanged, for ever."""
    monkeypatch.setattr(postgres, "COMMAND_SECONDS", 1.0)  # instead of 30
    together = asyncio.Event()
    async with App(Settings(database_url=fresh_postgres_url)) as app:

        @app.job()
        async def quick(number: int) -> int:
            await together.wait()
            return number

        jobs = await quick.enqueue_many([{"number": number} for number in range(20)])
        holder = await asyncpg.connect(fresh_postgres_url)
        async with working(app, concurrency=20) as at_work:
            await until(lambda: at_work.worker.slots.busy == 20)
            await holder.execute("BEGIN")
            await holder.execute("SELECT 1 FROM holdfast_jobs WHERE id = $1 FOR UPDATE", jobs[7].id)
            together.set()
            others = [job for job in jobs if job is not jobs[7]]
            assert [await job.result(60) for job in others] == [n for n in range(20) if n != 7]
            later = await quick.enqueue(20)
            assert await later.result(60) == 20
            await holder.execute("ROLLBACK")
            assert await jobs[7].result(60) == 7
        await holder.close()
    assert ("complete", 1) in at_work.source.calls
