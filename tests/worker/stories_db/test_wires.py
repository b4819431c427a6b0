"""The wire between a worker and PostgreSQL breaks at the worst moments; the worker is a process behind a proxy."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.servers.proxy import Proxy
from tests.worker.stories import app as jobs
from tests.worker.stories.stage import Command, Stage, eventually
from tests.worker.stories_db.ledger import Ledger
from tests.worker.stories_db.load import load
from tests.worker.stories_db.test_database_away import all_done
from tests.worker.stories_db.wires import Drawbridge, PoolerWire, SilentWire

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
OpenStage = Callable[..., Awaitable[Stage]]

SOON_SECONDS = 10  # generous, and still far less than the lease of 30 s that a job would have to wait for

UNTROUBLED = ["create", "accept", "claim", "complete"]
GIVEN_BACK = ["create", "accept", "claim", "release", "claim", "complete"]


def a_claim_of(command: Command) -> bytes:
    """What only a claim has in it: the name that the worker process claims under."""
    [pid] = command.workers
    return f"-{pid}-".encode()


async def test_what_was_claimed_or_completed_in_an_answer_that_was_lost_is_neither_lost_nor_done_twice(
    stage: OpenStage, fresh_postgres_url: str
) -> None:
    """F6, S14: the server heard the COMMIT, the worker never learned of it."""
    async with Proxy.to(fresh_postgres_url) as wire:
        on = await stage(fresh_postgres_url, through=wire.url)
        command = await on.start()

        wire.cut_at(a_claim_of(command), after=True)
        claimed = await jobs.on_the_loop.enqueue()
        await claimed.result(60)
        assert wire.cuts == 1

        running = await jobs.on_the_loop.enqueue(seconds=0.5)
        await on.started(running)
        wire.cut_at(running.id.encode(), after=True)  # the next that is heard of it is its end
        await running.result(60)
        await eventually(lambda: wire.cuts == 2)

        assert await command.stop() == 0
        ledger = await Ledger.read(await on.engine())
        ledger.each_succeeded_once([claimed.id, running.id])
        assert ledger.verbs(claimed.id) == GIVEN_BACK
        assert ledger.verbs(running.id) == UNTROUBLED
        assert ledger.attempts() == {1: 2}
        [claim, _], [given_back] = ledger.times("claim", claimed.id), ledger.times("release")
        print(f"given back after {given_back - claim:.2f} s")
        assert given_back - claim < SOON_SECONDS
        assert [len(on.diary.notes("started", job.id)) for job in (claimed, running)] == [1, 1]


async def test_it_is_given_back_also_when_the_database_stays_away_for_a_while(
    stage: OpenStage, fresh_postgres_url: str
) -> None:
    """A claim that was under way when the database went: the worker must not forget that it does not know."""
    async with Drawbridge.to(fresh_postgres_url) as wire:
        on = await stage(fresh_postgres_url, through=wire.url)
        command = await on.start()
        wire.cut_at(a_claim_of(command), after=True)
        job = await jobs.on_the_loop.enqueue()
        await eventually(lambda: wire.is_up)
        await eventually(lambda: command.log.count("cannot claim") >= 2)
        assert await job.status() == "RUNNING"
        wire.let_down()
        back = time.time()
        await job.result(60)
        ledger = await Ledger.read(await on.engine())
        assert ledger.verbs(job.id) == GIVEN_BACK
        [given_back] = ledger.times("release")
        print(f"given back {given_back - back:.2f} s after the database was back")
        assert given_back - back < SOON_SECONDS
