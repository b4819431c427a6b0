"""The connection between a worker and PostgreSQL breaks at critical moments; the worker connects through a proxy."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.servers.proxy import Proxy
from tests.worker.real_databases.faulty_proxies import RefusingProxy, SilentProxy
from tests.worker.real_databases.ledger import Ledger, all_done
from tests.worker.real_databases.load import load
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import Command, WorkerHarness, eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

SOON_SECONDS = 60  # on a busy machine; that no lease had to end first is in the ledger

CLAIM_AND_COMPLETE = ["claim", "complete"]
A_POLICY = b"SELECT body, moves FROM holdfast_policies"
TRIES = 15  # to connect: more than one claim makes


def a_claim_of(command: Command) -> bytes:
    """What only a claim has in it: the name that the worker process claims under."""
    [pid] = command.workers
    return f"-{pid}-".encode()


async def test_a_claim_or_completion_whose_answer_was_lost_takes_effect_once(
    fresh_postgres_url: str, harness: OpenHarness
) -> None:
    """F6, S14: the server heard the COMMIT, the worker never learned of it."""
    async with Proxy.to(fresh_postgres_url) as wire:
        on = await harness(fresh_postgres_url, through=wire.url)
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
        assert ledger.verbs(claimed.id) == ledger.verbs(running.id) == CLAIM_AND_COMPLETE
        assert ledger.attempts() == {1: 2}
        assert [len(on.handler_log.notes("started", job.id)) for job in (claimed, running)] == [1, 1]


@pytest.mark.parametrize("moment", ["its answer", "what the job's clocks are"])
async def test_a_claim_whose_answer_was_lost_in_an_outage_is_run_afterwards(
    fresh_postgres_url: str, harness: OpenHarness, moment: str
) -> None:
    """The connection is lost before the answer arrives; the worker must ask again what it holds."""
    async with RefusingProxy.to(fresh_postgres_url) as wire:
        on = await harness(fresh_postgres_url, through=wire.url)
        command = await on.start()
        wire.cut_at(a_claim_of(command) if moment == "its answer" else A_POLICY, after=True)
        job = await jobs.on_the_loop.enqueue()
        await eventually(lambda: wire.is_up)
        await eventually(lambda: wire.turned_away >= TRIES)
        assert await job.status() == "RUNNING"
        wire.restore()
        await job.result(60)
        assert (await Ledger.read(await on.engine())).verbs(job.id) == CLAIM_AND_COMPLETE
        assert len(on.handler_log.notes("started", job.id)) == 1


async def test_a_worker_keeps_claiming_after_twenty_disconnects_in_three_seconds(
    fresh_postgres_url: str, harness: OpenHarness
) -> None:
    """K17: the worker must continue to claim."""
    async with Proxy.to(fresh_postgres_url) as wire:
        on = await harness(fresh_postgres_url, through=wire.url)
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


async def test_a_half_open_listen_connection_is_replaced(fresh_postgres_url: str, harness: OpenHarness) -> None:
    """K13, F13: the LISTEN connection is half open and reports no error; polling still finds jobs."""
    async with SilentProxy.to(fresh_postgres_url) as wire:
        on = await harness(fresh_postgres_url, through=wire.url)
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
