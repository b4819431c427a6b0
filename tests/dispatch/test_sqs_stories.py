"""Jobs started by hints through SQS, and what becomes of the messages. S13, F30, K16, K20."""

import asyncio
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from holdfast.dispatch import sqs as module
from holdfast.dispatch.listener import FLOOR_MAX_SECONDS
from holdfast.dispatch.sqs import SqsBroker
from holdfast.model.hint import Hint
from holdfast.settings import Settings
from tests.dispatch.console import DEAD, QUEUE, Console
from tests.dispatch.stories import Hand, all_done, creating, hand, jobs, until
from tests.servers.sqs import SqsServer

pytestmark = pytest.mark.usefixtures("patient_with_sqs")

UNKNOWN = "0198c0de-0000-7000-8000-000000000001"


@pytest.fixture(autouse=True)
def soon_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was cut off may take messages with it: they come again when the server thinks us dead."""
    monkeypatch.setattr(module, "INVISIBLE_SECONDS", 2)


@pytest.fixture
def by_sqs(fresh_postgres_url: str, sqs_server: SqsServer) -> Settings:
    return Settings(
        database_url=fresh_postgres_url,
        dispatch="sqs",
        sqs_queue=QUEUE,
        sqs_endpoint_url=sqs_server.url,
        poll_seconds=0.5,
    )


@pytest.fixture
async def console(sqs_server: SqsServer) -> AsyncIterator[Console]:
    async with Console.of(sqs_server) as console:
        yield console


async def test_a_hint_goes_both_ways_and_is_gone_when_somebody_has_looked(store_url: str, by_sqs: Settings) -> None:
    """R000-4, C-42: in this mode polling is no rarer than without a broker."""
    settings = msgspec.structs.replace(by_sqs, database_url=store_url)
    async with creating(settings) as creator, hand(settings, live=50) as worker:
        await until(lambda: worker.dispatch.up)
        assert worker.hints.floor_seconds == settings.poll_seconds
        await all_done(creator.engine, await jobs(creator.engine, 1), worker)
        await until(lambda: received(worker) == 1)
        assert creator.dispatch
        assert creator.dispatch.tally == {("sent", "broker"): 1, ("sent", "database"): 1}


async def test_a_job_starts_because_sqs_said_so(by_sqs: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no notice of the database is heard, and nobody looks by himself for a minute."""
    monkeypatch.setattr("holdfast.worker.sources.database.POLL_FIRST_SECONDS", FLOOR_MAX_SECONDS)
    seldom = msgspec.structs.replace(by_sqs, poll_seconds=FLOOR_MAX_SECONDS)
    async with creating(seldom) as creator, hand(seldom) as worker:
        await until(lambda: worker.dispatch.up and worker.hints._receiving)
        assert creator.dispatch
        creator.dispatch.sender._by_database = None
        await all_done(creator.engine, await jobs(creator.engine, 1), worker)
        assert worker.tally["received", "woke"] == 1


async def test_a_backlog_drains_and_none_of_its_hints_is_a_dead_letter(
    by_sqs: Settings, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F30: the number of messages goes to 0, though whoever receives them is full again at once."""
    monkeypatch.setattr(module, "GIVEN_BACK_SECONDS", (0, 0))
    async with creating(by_sqs) as creator, hand(by_sqs, slots=2) as worker, hand(by_sqs, slots=2) as other:
        ids: list[str] = []
        for _ in range(20):
            ids += await jobs(creator.engine, 10)
        await all_done(creator.engine, ids, worker, other)
        await console.holds(QUEUE, 0)
    assert await console.messages(DEAD) == 0


@pytest.mark.slow
async def test_a_job_longer_than_every_timeout_of_the_broker_runs_once(
    by_sqs: Settings, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K16: the message is gone with the claim, or waits for somebody who is free; the job is not the message's."""
    monkeypatch.setattr(module, "INVISIBLE_SECONDS", 1)
    async with creating(by_sqs) as creator, hand(by_sqs) as slow, hand(by_sqs) as other:
        slow.pause = other.pause = 5.0
        ids = await jobs(creator.engine, 3)
        await all_done(creator.engine, ids, slow, other)
        await console.holds(QUEUE, 0)
    assert await console.messages(DEAD) == 0


async def test_doubled_late_unknown_and_foreign_messages_are_harmless(by_sqs: Settings, console: Console) -> None:
    """R000-5, R000-34..37, F30: what can be used by nobody ends deleted, not retried for ever."""
    async with creating(by_sqs) as creator, hand(by_sqs) as worker:
        ids = await jobs(creator.engine, 20)
        await all_done(creator.engine, ids, worker)
        assert creator.dispatch
        finished = [Hint("default", "a", job) for job in ids * 3]
        unknown = [Hint("default", "a", UNKNOWN), Hint("default")] * 5
        creator.dispatch.sender(random.Random(3).sample(finished + unknown, 70))
        await console.send("no hint", "[]", "x" * 2000)
        await until(lambda: worker.tally["received", "garbage"] == 3)
        await console.holds(QUEUE, 0)
        assert await console.messages(DEAD) == 0
        await all_done(creator.engine, ids, worker)


async def test_what_no_worker_serves_becomes_a_dead_letter_and_its_job_is_found(
    by_sqs: Settings, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GIVEN_BACK_SECONDS", (0, 0))
    async with creating(by_sqs) as creator, hand(by_sqs, queues=["mail"]) as mail:
        await until(lambda: mail.dispatch.up)
        ids = await jobs(creator.engine, 2, queue="video")
        await console.holds(DEAD, 2)
        assert mail.tally["received", "given_back"] >= 10
        await console.holds(QUEUE, 0)
        async with hand(by_sqs, queues=["video"]) as video:
            await all_done(creator.engine, ids, video)


async def test_ten_graceful_stops_do_not_make_the_queue_longer(by_sqs: Settings, console: Console) -> None:
    """K20: nothing is published again."""
    ids: list[str] = []
    async with creating(by_sqs) as creator:
        for _ in range(10):
            async with hand(by_sqs) as worker:
                await until(lambda worker=worker: worker.dispatch.up)  # the queue exists
                ids += await jobs(creator.engine, 3)
                await until(lambda worker=worker: worker.done)
            assert await console.messages() <= len(ids)
        async with hand(by_sqs) as last:
            await console.holds(QUEUE, 0)
            await until(lambda: last.dispatch.up)
    assert await console.messages(DEAD) == 0


async def test_sqs_is_killed_and_comes_back_without_its_queues(by_sqs: Settings, sqs_server: SqsServer) -> None:
    """L6, S13"""
    async with creating(by_sqs) as creator, hand(by_sqs) as worker:
        await until(lambda: worker.dispatch.up)
        sqs_server.stop(kill=True)
        ids = await jobs(creator.engine, 20)
        await all_done(creator.engine, ids, worker)
        sqs_server.start()
        await until(lambda: worker.dispatch.up)
        heard = received(worker)
        while received(worker) == heard:
            ids += await jobs(creator.engine, 1)
            await asyncio.sleep(0.2)
        await all_done(creator.engine, ids, worker)


async def test_hints_are_doubled_dropped_and_reordered(
    by_sqs: Settings, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13, F30: a tenth of each."""
    chance, send = random.Random(5), SqsBroker.send

    async def noisy(broker: SqsBroker, hints: list[Hint]) -> None:
        kept = [hint for hint in hints if chance.random() > 0.1]
        kept += [hint for hint in kept if chance.random() < 0.1]
        await send(broker, chance.sample(kept, len(kept)))

    monkeypatch.setattr(SqsBroker, "send", noisy)
    async with creating(by_sqs) as creator, hand(by_sqs) as worker, hand(by_sqs) as other:
        ids: list[str] = []
        for _ in range(20):
            ids += await jobs(creator.engine, 5)
        await all_done(creator.engine, ids, worker, other)
        await console.holds(QUEUE, 0)


def received(worker: Hand) -> int:
    return worker.tally["received", "woke"] + worker.tally["received", "claimed"]
