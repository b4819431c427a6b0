"""How long a broker's absence lasts for those who rely on it, and that worker processes outlive it. L6, F29..F31.

Bounds are asserted with fivefold slack; `python -m benchmarks.outage` measures them.
"""

import asyncio
import time
from pathlib import Path

import pytest

from holdfast.dispatch import nats, redis, sqs
from holdfast.dispatch.broker import ReceivedHint
from holdfast.dispatch.dispatch import kind_of_worker
from holdfast.dispatch.listener import FLOOR_MAX_SECONDS
from holdfast.model.hint import Hint
from tests.dispatch.crew import Books, all_ended, heard
from tests.dispatch.errands import PRIORITIES, QUEUES, Errands
from tests.dispatch.places import MODES, Place
from tests.dispatch.stories import SECONDS, Hand, all_done, creating, hand, idle, jobs, until
from tests.servers.proxy import Proxy
from tests.worker.stories.stage import Stage, eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

KIND = kind_of_worker(None, None)
SLACK = 5
POLL_SECONDS = 1.0
FOUND_SECONDS, BACK_SECONDS, PARKED_SECONDS = POLL_SECONDS + 1, 10.0, 60.0  # as promised


@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.parametrize("mode", MODES)
async def test_polling_takes_over_from_a_lost_broker_and_gives_back_to_one_that_returned(
    place: Place, how: str, fresh_postgres_url: str
) -> None:
    """L6: the job is one of which no hint came through, and the worker had no reason to look for a minute."""
    async with (
        Proxy.to(place.url) as wire,
        creating(place.settings(fresh_postgres_url)) as creator,
        hand(place.settings(fresh_postgres_url, url=wire.url, poll_seconds=POLL_SECONDS), live=200) as worker,
    ):
        await idle(worker)
        if how == "killed":
            place.server.stop(kill=True)
        else:
            wire.swallow(requests=True, answers=True)
        lost = time.monotonic()
        senders = list(creator.engine.ctx.wakers)
        creator.engine.ctx.wakers.clear()
        ids = await jobs(creator.engine, 1)
        await until(lambda: worker.done == ids)
        assert time.monotonic() - lost < SLACK * FOUND_SECONDS
        creator.engine.ctx.wakers.extend(senders)
        if how == "killed":
            await asyncio.to_thread(place.server.start)
        await wire.come_back()
        async with asyncio.timeout(SLACK * BACK_SECONDS):
            await until(lambda: worker.dispatch.up, seconds=SLACK * BACK_SECONDS)
            before = heard(worker.dispatch)
            while heard(worker.dispatch) == before:
                ids += await jobs(creator.engine, 1)
                await asyncio.sleep(0.1)
        await all_done(creator.engine, ids, worker)


# -- hints that somebody took and did nothing with ---------------------------------------------------------------------


def test_nothing_is_parked_with_a_dead_reader_for_more_than_a_minute() -> None:
    """L6: by then it is given to another one of its kind; and everybody looks into the database by himself."""
    assert redis.DEAD_SECONDS + 1.25 * redis.TAKE_OVER_SECONDS < PARKED_SECONDS
    assert max(nats.ACK_SECONDS, sqs.INVISIBLE_SECONDS) < PARKED_SECONDS
    assert FLOOR_MAX_SECONDS <= PARKED_SECONDS


@pytest.mark.parametrize("mode", ["redis", "nats"])  # and SQS: test_sqs.py
async def test_what_a_dead_reader_took_comes_to_another(
    place: Place, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L6, K30"""
    monkeypatch.setattr(redis, "DEAD_SECONDS", 0.5)
    monkeypatch.setattr(redis, "TAKE_OVER_SECONDS", 0.3)
    monkeypatch.setattr(nats, "ACK_SECONDS", 0.5)
    settings = place.settings(fresh_postgres_url, poll_seconds=FLOOR_MAX_SECONDS)
    async with creating(settings) as creator, hand(settings) as worker:
        await idle(worker)
        before = heard(worker.dispatch)
        await park(place, worker, Hint("default", "a"))
        await until(lambda: heard(worker.dispatch) == before + 1)
        await all_done(creator.engine, await jobs(creator.engine, 1), worker)


@pytest.mark.parametrize("mode", ["redis"])
async def test_what_went_with_a_deleted_reader_is_found_in_the_database(place: Place, fresh_postgres_url: str) -> None:
    """K30: its pending hint is gone for good; whoever looks by himself now and then finds the job."""
    settings = place.settings(fresh_postgres_url, poll_seconds=POLL_SECONDS)
    async with creating(settings) as creator, hand(settings) as worker:
        await idle(worker)
        creator.engine.ctx.wakers.clear()
        (job,) = await jobs(creator.engine, 1, delay_seconds=1)
        await park(place, worker, Hint("default", "a", job))
        for reader in place.server.say("XINFO", "CONSUMERS", redis.STREAMS["normal"], KIND):
            place.server.say("XGROUP", "DELCONSUMER", redis.STREAMS["normal"], KIND, reader[1])
        await all_done(creator.engine, [job], worker)


async def park(place: Place, worker: Hand, hint: Hint) -> None:
    """With somebody of the same kind, who dies, while the worker does not listen."""
    worker.busy.clear()
    worker.source._presence.wake()  # it looks once more
    await until(lambda: worker.hints._receiving is None)
    thief, taken = place.broker(KIND), list[ReceivedHint]()
    await thief.open()
    await thief.send([hint])
    async with asyncio.timeout(SECONDS):
        while not taken:
            taken = await thief.receive(1, 10)
    await thief.close()
    worker.busy.set()


@pytest.mark.parametrize("mode", ["nats"])
async def test_a_job_longer_than_every_timeout_of_the_broker_runs_once(
    place: Place, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K16: the hint is settled by the claim, and the job is not the hint's."""
    monkeypatch.setattr(nats, "ACK_SECONDS", 0.3)
    settings = place.settings(fresh_postgres_url, poll_seconds=FLOOR_MAX_SECONDS)
    async with creating(settings) as creator, hand(settings, slots=1) as slow, hand(settings, slots=1) as other:
        await idle(slow, other)
        slow.pause = other.pause = 1.5
        await all_done(creator.engine, await jobs(creator.engine, 4), slow, other)


# -- real processes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_worker_processes_outlive_their_broker(place: Place, fresh_postgres_url: str, tmp_path: Path) -> None:
    """S13, L6: kill -9 in the middle of the run, and it comes back empty."""
    settings, errands = place.settings(fresh_postgres_url, poll_seconds=POLL_SECONDS), Errands()
    stage = Stage(tmp_path, settings)
    try:
        async with creating(settings) as creator:
            command = await stage.start("--app", "tests.dispatch.errands:app", "--queues", ",".join(QUEUES))
            for wave in range(9):
                if wave == 3:
                    await asyncio.to_thread(place.server.stop, kill=True)
                await errands.give(creator.engine, QUEUES[wave % 2], PRIORITIES[wave % 3])
                await asyncio.sleep(0.05)
            await all_ended(creator.engine)
            await eventually(lambda: "hints go through the database" in command.log)
            await asyncio.to_thread(place.server.restart, empty=True)
            await eventually(lambda: "the broker is reachable again" in command.log, SLACK * BACK_SECONDS)
            await errands.give(creator.engine, QUEUES[0], 0)
            await all_ended(creator.engine)
            found = await Books(tmp_path, creator.engine).all_truthful(list(errands.given))
            assert errands.found(found) == errands.expected
            assert await command.stop() == 0
    finally:
        await stage.close()
