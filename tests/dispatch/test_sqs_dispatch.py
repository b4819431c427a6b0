"""Jobs started by hints through SQS, and the messages that remain in its queues. S13, F30, K16, K20."""

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
from tests.dispatch.harness import MiniWorker, assert_each_ran_once, create_jobs, mini_worker, producer, until
from tests.dispatch.sqs_admin import DEAD, QUEUE, SqsAdmin
from tests.servers.aws import AwsServer

pytestmark = pytest.mark.usefixtures("long_sqs_timeout")

UNKNOWN = "0198c0de-0000-7000-8000-000000000001"


@pytest.fixture(autouse=True)
def short_visibility_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of an interrupted request are delivered again after the visibility timeout."""
    monkeypatch.setattr(module, "INVISIBLE_SECONDS", 2)


@pytest.fixture
def by_sqs(fresh_postgres_url: str, aws_server: AwsServer) -> Settings:
    return Settings(
        database_url=fresh_postgres_url,
        dispatch="sqs",
        sqs_queue=QUEUE,
        sqs_endpoint_url=aws_server.url,
        poll_seconds=0.5,
    )


@pytest.fixture
async def admin(aws_server: AwsServer) -> AsyncIterator[SqsAdmin]:
    async with SqsAdmin.of(aws_server) as admin:
        yield admin


async def test_a_hint_goes_through_sqs_and_the_database_and_is_deleted_after_the_claim(
    store_url: str, by_sqs: Settings
) -> None:
    """R000-4, C-42: in this mode workers poll as often as without a broker."""
    settings = msgspec.structs.replace(by_sqs, database_url=store_url)
    async with producer(settings) as creator, mini_worker(settings, live=50) as worker:
        await until(lambda: worker.dispatch.up)
        assert worker.hints.floor_seconds == settings.poll_seconds
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 1), worker)
        await until(lambda: received(worker) == 1)
        dispatch = creator.dispatch
        assert dispatch
        await until(lambda: dispatch.tally == {("sent", "broker"): 1, ("sent", "database"): 1})


async def test_an_idle_worker_starts_a_job_when_sqs_delivers_a_hint(
    by_sqs: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without notifications from the database, and with the next poll a minute away."""
    monkeypatch.setattr("holdfast.worker.sources.database.POLL_FIRST_SECONDS", FLOOR_MAX_SECONDS)
    rare_polls = msgspec.structs.replace(by_sqs, poll_seconds=FLOOR_MAX_SECONDS)
    async with producer(rare_polls) as creator, mini_worker(rare_polls) as worker:
        await until(lambda: worker.dispatch.up and worker.hints._receiving)
        assert creator.dispatch
        creator.dispatch.sender._by_database = None
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 1), worker)
        await until(lambda: worker.tally["received", "woke"] == 1)


async def test_the_hints_of_a_drained_backlog_are_deleted_and_none_is_dead_lettered(
    by_sqs: Settings, admin: SqsAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F30: the queue becomes empty, although the receiving workers are busy again at once."""
    monkeypatch.setattr(module, "GIVEN_BACK_SECONDS", (0, 0))
    async with (
        producer(by_sqs) as creator,
        mini_worker(by_sqs, slots=2) as worker,
        mini_worker(by_sqs, slots=2) as other,
    ):
        ids: list[str] = []
        for _ in range(20):
            ids += await create_jobs(creator.engine, 10)
        await assert_each_ran_once(creator.engine, ids, worker, other)
        await admin.wait_for_count(QUEUE, 0)
    assert await admin.messages(DEAD) == 0


@pytest.mark.slow
async def test_a_job_that_outlasts_the_visibility_timeout_runs_once(
    by_sqs: Settings, admin: SqsAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K16: the claim deletes the message, or it waits for a free worker; SQS does not know how long the job runs."""
    monkeypatch.setattr(module, "INVISIBLE_SECONDS", 1)
    async with producer(by_sqs) as creator, mini_worker(by_sqs) as slow, mini_worker(by_sqs) as other:
        slow.pause = other.pause = 5.0
        ids = await create_jobs(creator.engine, 3)
        await assert_each_ran_once(creator.engine, ids, slow, other)
        await admin.wait_for_count(QUEUE, 0)
    assert await admin.messages(DEAD) == 0


async def test_duplicate_late_unknown_and_malformed_messages_are_deleted(by_sqs: Settings, admin: SqsAdmin) -> None:
    """R000-5, R000-34..37, F30: useless messages are deleted, not retried forever."""
    async with producer(by_sqs) as creator, mini_worker(by_sqs) as worker:
        ids = await create_jobs(creator.engine, 20)
        await assert_each_ran_once(creator.engine, ids, worker)
        assert creator.dispatch
        finished = [Hint("default", "a", job) for job in ids * 3]
        unknown = [Hint("default", "a", UNKNOWN), Hint("default")] * 5
        creator.dispatch.sender(random.Random(3).sample(finished + unknown, 70))
        await admin.send("no hint", "[]", "x" * 2000)
        await until(lambda: worker.tally["received", "garbage"] == 3)
        await admin.wait_for_count(QUEUE, 0)
        assert await admin.messages(DEAD) == 0
        await assert_each_ran_once(creator.engine, ids, worker)


async def test_a_hint_for_an_unserved_queue_is_dead_lettered_and_its_job_still_runs_later(
    by_sqs: Settings, admin: SqsAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GIVEN_BACK_SECONDS", (0, 0))
    async with producer(by_sqs) as creator, mini_worker(by_sqs, queues=["mail"]) as mail:
        await until(lambda: mail.dispatch.up)
        ids = await create_jobs(creator.engine, 2, queue="video")
        await admin.wait_for_count(DEAD, 2)
        assert mail.tally["received", "given_back"] >= 10
        await admin.wait_for_count(QUEUE, 0)
        async with mini_worker(by_sqs, queues=["video"]) as video:
            await assert_each_ran_once(creator.engine, ids, video)


async def test_graceful_stops_publish_no_additional_messages(by_sqs: Settings, admin: SqsAdmin) -> None:
    """K20: a stopping worker does not publish its hints again."""
    ids: list[str] = []
    async with producer(by_sqs) as creator:
        for _ in range(10):
            async with mini_worker(by_sqs) as worker:
                await until(lambda worker=worker: worker.dispatch.up)  # the queue exists
                ids += await create_jobs(creator.engine, 3)
                await until(lambda worker=worker: worker.done)
            assert await admin.messages() <= len(ids)
        async with mini_worker(by_sqs) as last:
            await admin.wait_for_count(QUEUE, 0)
            await until(lambda: last.dispatch.up)
    assert await admin.messages(DEAD) == 0


async def test_jobs_continue_through_the_database_until_sqs_is_back_without_its_queues(
    by_sqs: Settings, aws_server: AwsServer
) -> None:
    """L6, S13"""
    async with producer(by_sqs) as creator, mini_worker(by_sqs) as worker:
        await until(lambda: worker.dispatch.up)
        aws_server.stop(kill=True)
        ids = await create_jobs(creator.engine, 20)
        await assert_each_ran_once(creator.engine, ids, worker)
        aws_server.start()
        await until(lambda: worker.dispatch.up)
        before = received(worker)
        while received(worker) == before:
            ids += await create_jobs(creator.engine, 1)
            await asyncio.sleep(0.2)
        await assert_each_ran_once(creator.engine, ids, worker)


async def test_duplicated_dropped_and_reordered_hints_cost_no_job(
    by_sqs: Settings, admin: SqsAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13, F30: a tenth of each."""
    rng, send = random.Random(5), SqsBroker.send

    async def unreliable_send(broker: SqsBroker, hints: list[Hint]) -> None:
        kept = [hint for hint in hints if rng.random() > 0.1]
        kept += [hint for hint in kept if rng.random() < 0.1]
        await send(broker, rng.sample(kept, len(kept)))

    monkeypatch.setattr(SqsBroker, "send", unreliable_send)
    async with producer(by_sqs) as creator, mini_worker(by_sqs) as worker, mini_worker(by_sqs) as other:
        ids: list[str] = []
        for _ in range(20):
            ids += await create_jobs(creator.engine, 5)
        await assert_each_ran_once(creator.engine, ids, worker, other)
        await admin.wait_for_count(QUEUE, 0)


def received(worker: MiniWorker) -> int:
    return worker.tally["received", "woke"] + worker.tally["received", "claimed"]
