"""The wire between a worker and PostgreSQL breaks at the worst moments; the worker is a process behind a proxy."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.servers.proxy import Proxy
from tests.worker.stories import app as jobs
from tests.worker.stories.stage import Command, Stage, eventually
from tests.worker.stories_db.ledger import Ledger, all_done
from tests.worker.stories_db.load import load
from tests.worker.stories_db.wires import Drawbridge, SilentWire

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
OpenStage = Callable[..., Awaitable[Stage]]

SOON_SECONDS = 60  # on a busy machine; that no lease had to end first is in the ledger

UNTROUBLED = ["claim", "complete"]
A_POLICY = b"SELECT body, moves FROM holdfast_policies"
TRIES = 15  # to connect: more than one claim makes


def a_claim_of(command: Command) -> bytes:
    """What only a claim has in it: the name that the worker process claims under."""
    [pid] = command.workers
    return f"-{pid}-".encode()


async def test_what_was_claimed_or_completed_in_an_answer_that_was_lost_is_neither_lost_nor_done_twice(
    fresh_postgres_url: str, stage: OpenStage
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
        assert ledger.verbs(claimed.id) == ledger.verbs(running.id) == UNTROUBLED
        assert ledger.attempts() == {1: 2}
        assert [len(on.diary.notes("started", job.id)) for job in (claimed, running)] == [1, 1]


@pytest.mark.parametrize("moment", ["its answer", "what the job's clocks are"])
async def test_a_claim_that_the_worker_does_not_hear_out_is_run_when_the_database_is_there_again(
    fresh_postgres_url: str, stage: OpenStage, moment: str
) -> None:
    """The database goes before the worker has heard it; the worker must not forget that it does not know."""
    async with Drawbridge.to(fresh_postgres_url) as wire:
        on = await stage(fresh_postgres_url, through=wire.url)
        command = await on.start()
        wire.cut_at(a_claim_of(command) if moment == "its answer" else A_POLICY, after=True)
        job = await jobs.on_the_loop.enqueue()
        await eventually(lambda: wire.is_up)
        await eventually(lambda: wire.turned_away >= TRIES)
        assert await job.status() == "RUNNING"
        wire.let_down()
        await job.result(60)
        assert (await Ledger.read(await on.engine())).verbs(job.id) == UNTROUBLED
        assert len(on.diary.notes("started", job.id)) == 1


async def test_a_wire_that_is_cut_twenty_times_in_three_seconds_leaves_no_deaf_worker(
    fresh_postgres_url: str, stage: OpenStage
) -> None:
    """K17: alive is not enough, it must go on claiming."""
    async with Proxy.to(fresh_postgres_url) as wire:
        on = await stage(fresh_postgres_url, through=wire.url)
        command = await on.start()
        workers = command.workers
        async with load() as handed_in:
            for _ in range(20):
                await asyncio.sleep(0.15)
                wire.cut()
            calm = time.time()
            await handed_in.more()
        ledger = await all_done(on, handed_in.ids)
        print(f"{wire.cuts} connections cut; the next claim came {ledger.first_claim(calm):.2f} s after the last of it")
        assert wire.cuts >= 20
        assert ledger.first_claim(calm) < SOON_SECONDS
        assert ledger.reaped() == {}
        assert command.workers == workers
        assert await command.stop() == 0


async def test_a_wire_that_is_half_open_costs_a_moment_and_the_worker_listens_again(
    fresh_postgres_url: str, stage: OpenStage
) -> None:
    """K13, F13: the session that listens hears nothing any more and is not told so; polling is the floor."""
    async with SilentWire.to(fresh_postgres_url) as wire:
        on = await stage(fresh_postgres_url, through=wire.url)
        await on.start()
        assert wire.silence() == 1
        fell_silent = time.monotonic()
        for _ in range(3):
            began = time.monotonic()
            await (await jobs.on_the_loop.enqueue()).result(60)
            print(f"unheard of, a job was done after {time.monotonic() - began:.2f} s")
            assert time.monotonic() - began < SOON_SECONDS
        await eventually(lambda: wire.listeners == 2)
        print(f"it listened again after {time.monotonic() - fell_silent:.2f} s")
        assert (await Ledger.read(await on.engine())).reaped() == {}
