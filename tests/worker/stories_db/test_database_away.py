"""PostgreSQL goes and comes back under load: workers wait, reconnect and go on, and it does not look like death."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from holdfast.handle import JobHandle
from holdfast.store.migrate import migrate
from tests.servers.postgres import PostgresServer, running
from tests.worker.stories import app as jobs
from tests.worker.stories.stage import Stage, eventually
from tests.worker.stories_db.ledger import Ledger
from tests.worker.stories_db.load import Load, load

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
OpenStage = Callable[..., Awaitable[Stage]]

AWAY_SECONDS = 3.0
RESUMED_SECONDS = 20  # generous: 5 is the aim, and printed


async def test_a_database_that_goes_away_costs_no_job_and_no_worker(stage: OpenStage) -> None:
    """F4, L5: stopped in order, then killed. The lease is 30 s: nothing may have to wait for that."""
    with running(durable=True) as server:
        await migrate(server.dsn())
        on = await stage(server.dsn())
        command = await on.start("--processes", "2", ready=2)
        workers = command.workers
        returns: list[float] = []
        spanning: list[JobHandle[Any]] = []
        async with load() as handed_in:
            for kill in (False, True):
                await some_more(handed_in)
                spanning += [await jobs.on_the_loop.enqueue(seconds=AWAY_SECONDS / 2) for _ in range(4)]
                await asyncio.gather(*(on.started(job) for job in spanning))
                returns.append(await away(server, kill=kill))
                await some_more(handed_in)
        assert handed_in.refusals > 0, "nobody noticed"
        ids = [*handed_in.ids, *(job.id for job in spanning)]
        ledger = await all_done(on, ids)

        for back in returns:
            print(f"the first claim came {ledger.first_claim(back):.2f} s after the database")
            assert ledger.first_claim(back) < RESUMED_SECONDS
        assert ledger.reaped() == {}, "neither a restart nor a reconnect is a death"
        assert ledger.attempts() == {1: len(ids)}
        assert sorted(note["job"] for note in on.diary.notes("started")) == sorted(ids), "each ran once"
        for number, job in enumerate(spanning):
            back = returns[number // 4]
            [returned], [completed] = on.diary.notes("returned", job.id), ledger.times("complete", job.id)
            assert returned["at"] < back < completed, "it ended meanwhile, and its result was delivered"
        assert command.workers == workers, "they are the same processes"
        assert await command.stop() == 0


async def away(server: PostgresServer, *, kill: bool) -> float:
    """When it was back."""
    await asyncio.to_thread(server.stop, kill=kill)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(server.start)
    return time.time()


async def some_more(handed_in: Load, number: int = 50) -> None:
    enough = len(handed_in.ids) + number
    await eventually(lambda: len(handed_in.ids) >= enough)


async def all_done(on: Stage, ids: list[str], seconds: float = RESUMED_SECONDS) -> Ledger:
    engine = await on.engine()

    async def done() -> bool:
        return {state.value for _, _, state, _ in await engine.counts()} == {"succeeded"}

    await eventually(done, seconds)
    ledger = await Ledger.read(engine)
    ledger.each_succeeded_once(ids)
    return ledger
