"""Jobs started by hints through a real NATS server, and what happens to them when it has a bad day. S13, L6, F31."""

import asyncio
import random

import msgspec
import nats
import pytest

from holdfast.assembly.engine import OpenEngine
from holdfast.dispatch import nats as module
from holdfast.dispatch.dispatch import kind_of_worker
from holdfast.dispatch.listener import FLOOR_MAX_SECONDS
from holdfast.dispatch.nats import SUBJECTS, NatsBroker
from holdfast.dispatch.nats_pull import STREAM
from holdfast.model.hint import Hint
from holdfast.settings import Settings
from tests.dispatch.stories import Hand, all_done, creating, hand, idle, jobs, until
from tests.servers.nats import NatsServer
from tests.servers.proxy import Proxy

UNKNOWN = "0198c0de-0000-7000-8000-000000000001"


@pytest.fixture
def by_nats(fresh_postgres_url: str, nats_server: NatsServer) -> Settings:
    """Nobody looks by himself for a minute: what is found, a hint has found."""
    return Settings(
        database_url=fresh_postgres_url, dispatch="nats", nats_url=nats_server.url, poll_seconds=FLOOR_MAX_SECONDS
    )


async def test_an_idle_worker_starts_a_job_because_nats_said_so(by_nats: Settings) -> None:
    async with creating(by_nats) as creator, hand(by_nats) as worker:
        await idle(worker)
        await all_done(creator.engine, await jobs(creator.engine, 1), worker)
        assert worker.tally["received", "woke"] == 1
        assert creator.dispatch
        assert creator.dispatch.tally == {("sent", "broker"): 1}, "and nothing went by the database"


async def test_in_both_stores(store_url: str, nats_server: NatsServer) -> None:
    settings = Settings(database_url=store_url, dispatch="nats", nats_url=nats_server.url)
    async with creating(settings) as creator, hand(settings) as worker, hand(settings) as other:
        await until(lambda: worker.dispatch.up and other.dispatch.up)
        await all_done(creator.engine, await jobs(creator.engine, 200), worker, other)
        assert len(worker.done) + len(other.done) == 200


async def test_a_busy_worker_leaves_the_hints_to_others(by_nats: Settings) -> None:
    """L6: nothing is parked with somebody who does not wait for it."""
    async with creating(by_nats) as creator, hand(by_nats) as full, hand(by_nats) as free:
        await idle(full, free)
        full.busy.clear()
        full.source._presence.wake()  # it looks once more, and then is busy
        await until(lambda: full.hints._receiving is None)
        for _ in range(10):
            await all_done(creator.engine, await jobs(creator.engine, 1), free)
            free.done.clear()
        assert full.done == []


# -- trouble -----------------------------------------------------------------------------------------------------------


async def test_hints_are_doubled_dropped_and_reordered(by_nats: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """S13, R000-5: a tenth of each; polling finds those that no other hint has found."""
    chance, send = random.Random(5), NatsBroker.send

    async def noisy(broker: NatsBroker, hints: list[Hint]) -> None:
        kept = [hint for hint in hints if chance.random() > 0.1]
        kept += [hint for hint in kept if chance.random() < 0.1]
        await send(broker, chance.sample(kept, len(kept)))

    monkeypatch.setattr(NatsBroker, "send", noisy)
    often = msgspec.structs.replace(by_nats, poll_seconds=0.2)
    async with creating(often) as creator, hand(often) as worker, hand(often) as other:
        ids: list[str] = []
        for _ in range(40):
            ids += await jobs(creator.engine, 5)
        await all_done(creator.engine, ids, worker, other)
        assert sorted(worker.done + other.done) == sorted(ids)


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "as it was"])
async def test_nats_is_killed_and_comes_back(by_nats: Settings, nats_server: NatsServer, empty: bool) -> None:
    """L6, F31: jobs go on by the database, and then through NATS again."""
    async with creating(by_nats) as creator, hand(by_nats) as worker:
        await idle(worker)
        nats_server.stop(kill=True)
        ids = await jobs(creator.engine, 5)
        await all_done(creator.engine, ids, worker)
        assert creator.dispatch
        assert creator.dispatch.tally["sent", "database"] == 5
        nats_server.restart(empty=empty)
        await back_on_the_broker(creator, worker, ids)


async def test_nats_comes_back_without_its_last_writes(by_nats: Settings, nats_server: NatsServer) -> None:
    """F31, K31: what was acknowledged there and lost was only a hint."""
    async with creating(by_nats) as creator, hand(by_nats) as worker:
        await idle(worker)
        ids = await jobs(creator.engine, 5)
        await all_done(creator.engine, ids, worker)
        nats_server.stop()
        older = nats_server.remember()
        nats_server.start()
        await back_on_the_broker(creator, worker, ids)
        nats_server.stop(kill=True)
        nats_server.start_with(older)
        await back_on_the_broker(creator, worker, ids)


async def test_a_deleted_stream_is_rebuilt_from_the_database(by_nats: Settings) -> None:
    """F31: whoever misses it makes it again, and looks."""
    client = await nats.connect(by_nats.nats_url)
    async with creating(by_nats) as creator, hand(by_nats) as worker:
        await idle(worker)
        for _ in range(3):
            await client.jetstream().delete_stream(STREAM)
            await all_done(creator.engine, await jobs(creator.engine, 2), worker)
            worker.done.clear()
            await until(lambda: worker.dispatch.up)
    await client.close()


async def test_a_hint_that_is_delivered_no_more_does_not_strand_its_job(
    by_nats: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F31: max-deliver reached by a worker of the same kind that takes hints and does nothing."""
    monkeypatch.setattr(module, "DELIVERIES_MAX", 2)
    often = msgspec.structs.replace(by_nats, poll_seconds=1.0)
    thief = NatsBroker(by_nats.nats_url, kind_of_worker(None, None))
    async with creating(often) as creator, hand(often) as worker:
        await idle(worker)
        worker.busy.clear()
        worker.source._presence.wake()
        await until(lambda: worker.hints._receiving is None)
        ids = await jobs(creator.engine, 1)
        await thief.open()
        for _ in range(2):
            await thief.nack(await thief.receive(20, 10))
        assert await thief.receive(0.2, 10) == []
        worker.busy.set()
        await all_done(creator.engine, ids, worker)
    await thief.close()


async def test_garbage_and_lies_delay_nobody_for_long(by_nats: Settings) -> None:
    """SEC-23, S13: whoever can write there can at most make workers look."""
    client, chance = await nats.connect(by_nats.nats_url), random.Random(9)

    async def inject() -> None:
        while True:
            for subject in SUBJECTS.values():
                for _ in range(20):
                    await client.publish(subject, chance.randbytes(chance.randrange(300)))
                    await client.publish(subject, b'["default","a","%s",0]' % UNKNOWN.encode())
                    await client.publish(subject, b'["nowhere",null,null,-3]')
            await asyncio.sleep(0.01)

    async with creating(by_nats) as creator, hand(by_nats, queues=["default"]) as worker:
        await idle(worker)
        injecting = asyncio.create_task(inject())
        ids: list[str] = []
        for _ in range(20):
            ids += await jobs(creator.engine, 2)
            await asyncio.sleep(0.05)
        await all_done(creator.engine, ids, worker)
        injecting.cancel()
        assert worker.tally["received", "garbage"] > 100
    await client.close()


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_a_partition_is_noticed_and_heals(by_nats: Settings, how: str) -> None:
    """L6: connections that break, and those over which nothing comes any more."""
    async with Proxy.to(by_nats.nats_url) as proxy:
        behind = msgspec.structs.replace(by_nats, nats_url=proxy.url)
        async with creating(behind) as creator, hand(behind) as worker:
            await idle(worker)
            if how == "cut":
                await proxy.go_away()
            else:
                proxy.swallow(requests=True, answers=True)
            ids = await jobs(creator.engine, 5)
            await all_done(creator.engine, ids, worker)
            await until(lambda: creator.dispatch and creator.dispatch.tally["sent", "database"] == 5)
            await proxy.come_back()
            await back_on_the_broker(creator, worker, ids)


async def test_a_process_starts_and_jobs_run_though_nats_is_not_there(
    by_nats: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = msgspec.structs.replace(by_nats, nats_url="nats://holdfast:hunter2@127.0.0.1:1")
    async with creating(nowhere) as creator, hand(nowhere) as worker:
        await all_done(creator.engine, await jobs(creator.engine, 20), worker)
        await until(lambda: worker.dispatch.breaker.openings == 1)
        assert not worker.dispatch.up
    assert "hints go through the database" in caplog.text
    assert "hunter2" not in caplog.text


async def back_on_the_broker(creator: OpenEngine, worker: Hand, ids: list[str]) -> None:
    """Hints arrive through it again, and all jobs ended once."""
    await until(lambda: worker.dispatch.up)
    assert creator.dispatch
    sent, heard = creator.dispatch.tally["sent", "broker"], received(worker)
    while creator.dispatch.tally["sent", "broker"] == sent or received(worker) == heard:
        ids += await jobs(creator.engine, 1)  # it tries again with the next hint after the pause
        await asyncio.sleep(0.1)
    await all_done(creator.engine, ids, worker)


def received(worker: Hand) -> int:
    return worker.tally["received", "woke"] + worker.tally["received", "claimed"]
