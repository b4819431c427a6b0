"""Jobs started by hints through a real NATS server, and outages of that server. S13, L6, F31."""

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
from tests.dispatch.harness import (
    MiniWorker,
    assert_each_ran_once,
    create_jobs,
    final_states,
    mini_worker,
    producer,
    until,
    wait_until_idle,
)
from tests.servers.nats import NatsServer
from tests.servers.proxy import Proxy

UNKNOWN = "0198c0de-0000-7000-8000-000000000001"


@pytest.fixture
def by_nats(fresh_postgres_url: str, nats_server: NatsServer) -> Settings:
    """Workers poll once a minute: a job that starts earlier was started by a hint."""
    return Settings(
        database_url=fresh_postgres_url, dispatch="nats", nats_url=nats_server.url, poll_seconds=FLOOR_MAX_SECONDS
    )


async def test_an_idle_worker_starts_a_job_when_nats_delivers_a_hint(by_nats: Settings) -> None:
    async with producer(by_nats) as creator, mini_worker(by_nats) as worker:
        await wait_until_idle(worker)
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 1), worker)
        assert worker.tally["received", "woke"] == 1
        assert creator.dispatch
        assert creator.dispatch.tally == {("sent", "broker"): 1}, "no hint went through the database"


async def test_jobs_run_once_with_nats_on_both_stores(store_url: str, nats_server: NatsServer) -> None:
    settings = Settings(database_url=store_url, dispatch="nats", nats_url=nats_server.url)
    async with producer(settings) as creator, mini_worker(settings) as worker, mini_worker(settings) as other:
        await until(lambda: worker.dispatch.up and other.dispatch.up)
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 200), worker, other)
        assert len(worker.done) + len(other.done) == 200


async def test_a_busy_worker_receives_no_hints(by_nats: Settings) -> None:
    """L6: NATS delivers no hint to a worker that does not wait for one."""
    async with producer(by_nats) as creator, mini_worker(by_nats) as full, mini_worker(by_nats) as free:
        await wait_until_idle(full, free)
        full.free.clear()
        full.source._presence.wake()  # it claims once more, and is busy then
        await until(lambda: full.hints._receiving is None)
        for _ in range(10):
            await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 1), free)
            free.done.clear()
        assert full.done == []


# -- outages -----------------------------------------------------------------------------------------------------------


async def test_duplicated_dropped_and_reordered_hints_cost_no_job(
    by_nats: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13, R000-5: a tenth of each; polling finds the jobs whose hints were dropped."""
    rng, send = random.Random(5), NatsBroker.send

    async def unreliable_send(broker: NatsBroker, hints: list[Hint]) -> None:
        kept = [hint for hint in hints if rng.random() > 0.1]
        kept += [hint for hint in kept if rng.random() < 0.1]
        await send(broker, rng.sample(kept, len(kept)))

    monkeypatch.setattr(NatsBroker, "send", unreliable_send)
    often = msgspec.structs.replace(by_nats, poll_seconds=0.2)
    async with producer(often) as creator, mini_worker(often) as worker, mini_worker(often) as other:
        ids: list[str] = []
        for _ in range(40):
            ids += await create_jobs(creator.engine, 5)
        await assert_each_ran_once(creator.engine, ids, worker, other)
        assert sorted(worker.done + other.done) == sorted(ids)


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "with its data"])
async def test_jobs_continue_through_the_database_until_nats_is_back(
    by_nats: Settings, nats_server: NatsServer, empty: bool
) -> None:
    """L6, F31: hints go through the database while NATS is down, then through NATS again."""
    async with producer(by_nats) as creator, mini_worker(by_nats) as worker:
        await wait_until_idle(worker)
        nats_server.stop(kill=True)
        ids = await create_jobs(creator.engine, 5)
        await assert_each_ran_once(creator.engine, ids, worker)
        assert creator.dispatch
        assert creator.dispatch.tally["sent", "database"] == 5
        nats_server.restart(empty=empty)
        await assert_hints_arrive_again(creator, worker, ids)


async def test_jobs_run_once_after_nats_lost_acknowledged_writes(by_nats: Settings, nats_server: NatsServer) -> None:
    """F31, K31: only hints were lost, never jobs."""
    async with producer(by_nats) as creator, mini_worker(by_nats) as worker:
        await wait_until_idle(worker)
        ids = await create_jobs(creator.engine, 5)
        await assert_each_ran_once(creator.engine, ids, worker)
        nats_server.stop()
        snapshot = nats_server.remember()
        nats_server.start()
        await assert_hints_arrive_again(creator, worker, ids)
        nats_server.stop(kill=True)
        nats_server.start_with(snapshot)
        await assert_hints_arrive_again(creator, worker, ids)
        assert await final_states(creator.engine, ids) == {"succeeded after 1": len(ids)}
        assert len(worker.done) == len(ids), "no job ran twice"


async def test_a_deleted_stream_is_created_again_and_costs_no_job(by_nats: Settings) -> None:
    """F31: the worker that misses the stream creates it again and polls the database."""
    client = await nats.connect(by_nats.nats_url)
    async with producer(by_nats) as creator, mini_worker(by_nats) as worker:
        await wait_until_idle(worker)
        for _ in range(3):
            await client.jetstream().delete_stream(STREAM)
            await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 2), worker)
            worker.done.clear()
            await until(lambda: worker.dispatch.up)
            assert (await client.jetstream().stream_info(STREAM)).config.name == STREAM
    await client.close()


async def test_a_job_runs_although_its_hint_reached_max_deliver(
    by_nats: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F31: another consumer of the same kind takes the hints and rejects them until max-deliver is reached."""
    monkeypatch.setattr(module, "DELIVERIES_MAX", 2)
    often = msgspec.structs.replace(by_nats, poll_seconds=1.0)
    other_consumer = NatsBroker(by_nats.nats_url, kind_of_worker(None, None))
    async with producer(often) as creator, mini_worker(often) as worker:
        await wait_until_idle(worker)
        worker.free.clear()
        worker.source._presence.wake()
        await until(lambda: worker.hints._receiving is None)
        ids = await create_jobs(creator.engine, 1)
        await other_consumer.open()
        for _ in range(2):
            await other_consumer.nack(await other_consumer.receive(20, 10))
        assert await other_consumer.receive(0.2, 10) == []
        worker.free.set()
        await assert_each_ran_once(creator.engine, ids, worker)
    await other_consumer.close()


async def test_garbage_and_false_hints_do_not_delay_jobs(by_nats: Settings) -> None:
    """SEC-23, S13: a client with write access to the stream can only make workers poll."""
    client, rng = await nats.connect(by_nats.nats_url), random.Random(9)

    async def inject() -> None:
        while True:
            for subject in SUBJECTS.values():
                for _ in range(20):
                    await client.publish(subject, rng.randbytes(rng.randrange(300)))
                    await client.publish(subject, b'["default","a","%s",0]' % UNKNOWN.encode())
                    await client.publish(subject, b'["nowhere",null,null,-3]')
            await asyncio.sleep(0.01)

    async with producer(by_nats) as creator, mini_worker(by_nats, queues=["default"]) as worker:
        await wait_until_idle(worker)
        injecting = asyncio.create_task(inject())
        ids: list[str] = []
        for _ in range(20):
            ids += await create_jobs(creator.engine, 2)
            await asyncio.sleep(0.05)
        await assert_each_ran_once(creator.engine, ids, worker)
        await until(lambda: worker.tally["received", "garbage"] > 100)
        injecting.cancel()
    await client.close()


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_jobs_continue_through_the_database_during_a_network_partition(by_nats: Settings, how: str) -> None:
    """L6: closed connections, and open connections without any traffic."""
    async with Proxy.to(by_nats.nats_url) as proxy:
        behind = msgspec.structs.replace(by_nats, nats_url=proxy.url)
        async with producer(behind) as creator, mini_worker(behind) as worker:
            await wait_until_idle(worker)
            if how == "cut":
                await proxy.go_away()
            else:
                proxy.swallow(requests=True, answers=True)
            ids = await create_jobs(creator.engine, 5)
            await assert_each_ran_once(creator.engine, ids, worker)
            await until(lambda: creator.dispatch and creator.dispatch.tally["sent", "database"] == 5)
            before = received(worker)
            await proxy.come_back()
            await assert_hints_arrive_again(creator, worker, ids)
            assert received(worker) > before
            assert await final_states(creator.engine, ids) == {"succeeded after 1": len(ids)}


async def test_a_process_starts_and_jobs_run_while_nats_is_unreachable(
    by_nats: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    unreachable = msgspec.structs.replace(by_nats, nats_url="nats://holdfast:hunter2@127.0.0.1:1")
    async with producer(unreachable) as creator, mini_worker(unreachable) as worker:
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 20), worker)
        await until(lambda: worker.dispatch.breaker.openings == 1)
        assert not worker.dispatch.up
    assert "hints go through the database" in caplog.text
    assert "hunter2" not in caplog.text


async def assert_hints_arrive_again(creator: OpenEngine, worker: MiniWorker, ids: list[str]) -> None:
    """Wait until the worker receives hints through NATS again; all jobs have run once."""
    await until(lambda: worker.dispatch.up)
    assert creator.dispatch
    sent, before = creator.dispatch.tally["sent", "broker"], received(worker)
    while creator.dispatch.tally["sent", "broker"] == sent or received(worker) == before:
        ids += await create_jobs(
            creator.engine, 1
        )  # the circuit breaker tries again with the next hint after the pause
        await asyncio.sleep(0.1)
    await assert_each_ran_once(creator.engine, ids, worker)


def received(worker: MiniWorker) -> int:
    return worker.tally["received", "woke"] + worker.tally["received", "claimed"]
