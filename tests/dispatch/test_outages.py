"""How long jobs wait after a broker outage begins and ends, and worker processes during one. L6, F29..F31.

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
from tests.dispatch.backends import MODES, Backend
from tests.dispatch.cluster import RunChecker, received_hints, wait_until_all_final
from tests.dispatch.harness import (
    SECONDS,
    MiniWorker,
    assert_each_ran_once,
    create_jobs,
    mini_worker,
    producer,
    until,
    wait_until_idle,
)
from tests.dispatch.sample_jobs import PRIORITIES, QUEUES, SampleJobs
from tests.servers.proxy import Proxy
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

KIND = kind_of_worker(None, None)
SLACK = 5
POLL_SECONDS = 1.0
FOUND_SECONDS, RECONNECT_SECONDS, STUCK_SECONDS = POLL_SECONDS + 1, 10.0, 60.0  # the documented bounds


@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.parametrize("mode", MODES)
async def test_polling_replaces_a_lost_broker_until_it_is_back(
    backend: Backend, how: str, fresh_postgres_url: str
) -> None:
    """L6: no hint about the job arrives, and the regular poll is a minute away."""
    async with (
        Proxy.to(backend.url) as proxy,
        producer(backend.settings(fresh_postgres_url)) as creator,
        mini_worker(backend.settings(fresh_postgres_url, url=proxy.url, poll_seconds=POLL_SECONDS), live=200) as worker,
    ):
        await wait_until_idle(worker)
        if how == "killed":
            backend.server.stop(kill=True)
        else:
            proxy.swallow(requests=True, answers=True)
        lost = time.monotonic()
        senders = list(creator.engine.ctx.wakers)
        creator.engine.ctx.wakers.clear()
        ids = await create_jobs(creator.engine, 1)
        await until(lambda: worker.done == ids)
        assert time.monotonic() - lost < SLACK * FOUND_SECONDS
        creator.engine.ctx.wakers.extend(senders)
        if how == "killed":
            await asyncio.to_thread(backend.server.start)
        await proxy.come_back()
        async with asyncio.timeout(SLACK * RECONNECT_SECONDS):
            await until(lambda: worker.dispatch.up, seconds=SLACK * RECONNECT_SECONDS)
            before = received_hints(worker.dispatch)
            while received_hints(worker.dispatch) == before:
                ids += await create_jobs(creator.engine, 1)
                await asyncio.sleep(0.1)
        await assert_each_ran_once(creator.engine, ids, worker)


# -- hints that a dead reader has received -----------------------------------------------------------------------------


def test_a_hint_of_a_dead_reader_is_delivered_again_within_a_minute() -> None:
    """L6: by then another reader of the same kind has it; and every worker polls the database."""
    assert redis.DEAD_SECONDS + 1.25 * redis.TAKE_OVER_SECONDS < STUCK_SECONDS
    assert max(nats.ACK_SECONDS, sqs.INVISIBLE_SECONDS) < STUCK_SECONDS
    assert FLOOR_MAX_SECONDS <= STUCK_SECONDS


@pytest.mark.parametrize("mode", ["redis", "nats"])  # and SQS: test_sqs.py
async def test_a_hint_of_a_dead_reader_is_delivered_to_another_reader(
    backend: Backend, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L6, K30"""
    monkeypatch.setattr(redis, "DEAD_SECONDS", 0.5)
    monkeypatch.setattr(redis, "TAKE_OVER_SECONDS", 0.3)
    monkeypatch.setattr(nats, "ACK_SECONDS", 0.5)
    settings = backend.settings(fresh_postgres_url, poll_seconds=FLOOR_MAX_SECONDS)
    async with producer(settings) as creator, mini_worker(settings) as worker:
        await wait_until_idle(worker)
        before = received_hints(worker.dispatch)
        await receive_and_die(backend, worker, Hint("default", "a"))
        await until(lambda: received_hints(worker.dispatch) > before)
        assert received_hints(worker.dispatch) == before + 1
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 1), worker)


@pytest.mark.parametrize("mode", ["redis"])
async def test_polling_finds_the_job_whose_hint_was_lost_with_a_deleted_reader(
    backend: Backend, fresh_postgres_url: str
) -> None:
    """K30: the pending hint is lost for good; the next poll finds the job."""
    settings = backend.settings(fresh_postgres_url, poll_seconds=POLL_SECONDS)
    async with producer(settings) as creator, mini_worker(settings) as worker:
        await wait_until_idle(worker)
        creator.engine.ctx.wakers.clear()
        (job,) = await create_jobs(creator.engine, 1, delay_seconds=1)
        await receive_and_die(backend, worker, Hint("default", "a", job))
        for reader in backend.server.say("XINFO", "CONSUMERS", redis.STREAMS["normal"], KIND):
            backend.server.say("XGROUP", "DELCONSUMER", redis.STREAMS["normal"], KIND, reader[1])
        await assert_each_ran_once(creator.engine, [job], worker)
        assert worker.tally["received", "woke"] == 0, "no hint has found it"


async def receive_and_die(backend: Backend, worker: MiniWorker, hint: Hint) -> None:
    """Another reader of the same kind receives the hint and dies, while the worker does not listen."""
    worker.free.clear()
    worker.source._presence.wake()  # it claims once more
    await until(lambda: worker.hints._receiving is None)
    reader, taken = backend.broker(KIND), list[ReceivedHint]()
    await reader.open()
    await reader.send([hint])
    async with asyncio.timeout(SECONDS):
        while not taken:
            taken = await reader.receive(1, 10)
    await reader.close()
    worker.free.set()


@pytest.mark.parametrize("mode", ["nats"])
async def test_a_job_that_outlasts_the_timeouts_of_the_broker_runs_once(
    backend: Backend, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K16: the claim acknowledges the hint; the broker does not know how long the job runs."""
    monkeypatch.setattr(nats, "ACK_SECONDS", 0.3)
    settings = backend.settings(fresh_postgres_url, poll_seconds=FLOOR_MAX_SECONDS)
    async with (
        producer(settings) as creator,
        mini_worker(settings, slots=1) as slow,
        mini_worker(settings, slots=1) as other,
    ):
        await wait_until_idle(slow, other)
        slow.pause = other.pause = 1.5
        ids = await create_jobs(creator.engine, 4)
        await assert_each_ran_once(creator.engine, ids, slow, other)
        assert sorted(slow.done + other.done) == sorted(ids), "no job ran twice"


# -- real processes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_worker_processes_survive_a_crash_of_their_broker(
    backend: Backend, fresh_postgres_url: str, tmp_path: Path
) -> None:
    """S13, L6: kill -9 in the middle of the run, then a restart without data."""
    settings, samples = backend.settings(fresh_postgres_url, poll_seconds=POLL_SECONDS), SampleJobs()
    harness = WorkerHarness(tmp_path, settings)
    try:
        async with producer(settings) as creator:
            command = await harness.start("--app", "tests.dispatch.sample_jobs:app", "--queues", ",".join(QUEUES))
            for wave in range(9):
                if wave == 3:
                    await asyncio.to_thread(backend.server.stop, kill=True)
                await samples.create(creator.engine, QUEUES[wave % 2], PRIORITIES[wave % 3])
                await asyncio.sleep(0.05)
            await wait_until_all_final(creator.engine)
            await eventually(lambda: "hints go through the database" in command.log)
            await asyncio.to_thread(backend.server.restart, empty=True)
            await eventually(lambda: "the broker is reachable again" in command.log, SLACK * RECONNECT_SECONDS)
            await samples.create(creator.engine, QUEUES[0], 0)
            await wait_until_all_final(creator.engine)
            found = await RunChecker(tmp_path, creator.engine).check_all(list(samples.created))
            assert samples.found(found) == samples.expected
            assert await command.stop() == 0
    finally:
        await harness.close()
