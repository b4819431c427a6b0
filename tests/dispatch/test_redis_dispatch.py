"""Jobs started by hints through a real Redis, and outages of Redis. R003-113..117, L6."""

import asyncio
import os
import random
import sys
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.dispatch import redis
from holdfast.dispatch.dispatch import kind_of_worker
from holdfast.dispatch.listener import FLOOR_MAX_SECONDS, Listener
from holdfast.dispatch.redis import STREAMS, RedisBroker
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.model.hint import Hint
from holdfast.model.reports import Fail
from holdfast.settings import Settings
from tests.dispatch.harness import (
    assert_each_ran_once,
    create_jobs,
    final_states,
    mini_worker,
    producer,
    until,
    wait_until_idle,
)
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

NORMAL = STREAMS["normal"]


@pytest.fixture
def by_redis(fresh_postgres_url: str, redis_server: RedisServer) -> Settings:
    """Workers poll once a minute: a job that starts earlier was started by a hint."""
    return Settings(
        database_url=fresh_postgres_url, dispatch="redis", redis_url=redis_server.url, poll_seconds=FLOOR_MAX_SECONDS
    )


def changed(settings: Settings, **changes: Any) -> Settings:
    return Settings(**{name: getattr(settings, name) for name in settings.__struct_fields__} | changes)


# -- normal operation --------------------------------------------------------------------------------------------------


async def test_an_idle_worker_starts_a_job_when_redis_delivers_a_hint(by_redis: Settings) -> None:
    """R003-113, R003-114"""
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 1), worker)
        assert worker.tally["received", "woke"] == 1
        assert creator.dispatch
        assert creator.dispatch.tally == {("sent", "broker"): 1}, "no hint went through the database"


async def test_jobs_run_once_with_redis_on_both_stores(store_url: str, redis_server: RedisServer) -> None:
    settings = Settings(database_url=store_url, dispatch="redis", redis_url=redis_server.url)
    async with producer(settings) as creator, mini_worker(settings) as worker:
        await until(lambda: worker.dispatch.up)
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 50), worker)
        await until(lambda: creator.dispatch and creator.dispatch.tally["sent", "broker"] == 50)


async def test_hybrid_mode_sends_hints_through_redis_and_the_database_and_keeps_polling(by_redis: Settings) -> None:
    """R003-113"""
    settings = changed(by_redis, dispatch="hybrid", poll_seconds=7.0)
    async with producer(settings) as creator, mini_worker(settings, live=50) as worker:
        await wait_until_idle(worker)
        assert worker.hints.floor_seconds == 7.0
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 1), worker)
        assert creator.dispatch
        await until(lambda: creator.dispatch and creator.dispatch.tally["sent", "broker"] == 1)
        assert creator.dispatch.tally["sent", "database"] == 1


async def test_the_poll_interval_grows_with_the_number_of_live_workers(by_redis: Settings) -> None:
    settings = changed(by_redis, poll_seconds=1.5)
    async with mini_worker(settings, live=4) as few, mini_worker(settings, live=500) as many:
        await until(lambda: few.dispatch.up and many.dispatch.up)
        assert (few.hints.floor_seconds, many.hints.floor_seconds) == (6.0, FLOOR_MAX_SECONDS)
        many.dispatch.breaker.failed("injected by the test")
        assert many.hints.floor_seconds == 1.5, "as without a broker"


async def test_a_hint_goes_only_to_workers_of_its_kind(by_redis: Settings) -> None:
    async with AsyncExitStack() as stack:
        creator = await stack.enter_async_context(producer(by_redis))
        mail = await stack.enter_async_context(mini_worker(by_redis, queues=["mail"]))
        video = await stack.enter_async_context(mini_worker(by_redis, queues=["video"]))
        typed = await stack.enter_async_context(mini_worker(by_redis, queues=["other"], types=["b"]))
        await wait_until_idle(mail, video, typed)
        claims = mail.claims
        for queue in ("video",) * 5 + ("mail",):
            ids = await create_jobs(creator.engine, 1, queue=queue)
            await assert_each_ran_once(creator.engine, ids, mail if queue == "mail" else video)
        (unknown,) = await create_jobs(creator.engine, 1, queue="other")
        (known,) = await create_jobs(creator.engine, 1, queue="other", type="b")
        await assert_each_ran_once(creator.engine, [known], typed)
        assert mail.claims <= claims + 2, "a hint about another queue costs no query"
        assert typed.tally["received", "others"] >= 1
        assert (await creator.engine.reads.get(unknown)).state == "queued", (
            "a worker leaves job types that it does not have"
        )


async def test_a_hint_about_a_job_that_the_worker_has_claimed_costs_no_query(by_redis: Settings) -> None:
    """R000-5: by job id."""
    async with mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        await assert_each_ran_once(worker.engine, await create_jobs(worker.engine, 1), worker)
        await until(lambda: worker.tally["received", "claimed"] + worker.tally["received", "woke"] == 1)
        await wait_until_idle(worker)
        before, claims = worker.tally["received", "claimed"], worker.claims
        worker.dispatch.sender([Hint("default", "a", worker.done[0])] * 20)
        await until(lambda: worker.tally["received", "claimed"] == before + 20)
        assert worker.claims == claims


async def test_duplicate_hints_and_hints_about_unknown_jobs_are_ignored(by_redis: Settings) -> None:
    """R000-4, R000-5, R000-34..37: a message is a trigger, not the job."""
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        assert creator.dispatch
        ids = await create_jobs(creator.engine, 20)
        again = [Hint("default", "a", job) for job in ids * 3]
        unknown = [Hint("default", "a", "0198c0de-0000-7000-8000-000000000001")] * 10
        random.Random(3).shuffle(again)
        creator.dispatch.sender(again + unknown)
        await assert_each_ran_once(creator.engine, ids, worker)
        await until(lambda: sum(worker.tally[key] for key in worker.tally if key[0] == "received") >= 60)
        assert await final_states(creator.engine, ids) == {"succeeded after 1": 20}


async def test_a_hint_about_a_retry_wakes_the_worker_that_failed_the_job(by_redis: Settings) -> None:
    """The cache of recent claims forgets a job that the worker has failed."""
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        worker.free.clear()
        (job,) = await create_jobs(creator.engine, 1)
        ((lease, _),) = await worker.source.claim(1, queues=None, types=None)
        await worker.source.settle([Fail(id=lease.id, token=lease.token, code="E_X", retry_after_seconds=0)])
        worker.free.set()
        await until(lambda: worker.done == [job])
        assert await final_states(creator.engine, [job]) == {"succeeded after 2": 1}


async def test_maintenance_sends_a_hint_when_a_delayed_job_becomes_due(by_redis: Settings) -> None:
    """The worker that knew the time is busy; the sweep makes the job claimable and sends a hint."""
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        await creator.engine.create_many([NewJob(type="a", delay_seconds=0.5)])
        worker.free.clear()  # the worker that received the first hint is busy
        await asyncio.sleep(0.6)
        async with mini_worker(by_redis) as other:
            await wait_until_idle(other)
            await creator.engine.maintenance.requeue_due()
            await until(lambda: other.done or worker.done)
            assert (len(other.done), worker.done) == (1, [])


# -- busy and stopping workers -----------------------------------------------------------------------------------------


async def test_a_busy_worker_receives_no_hints(by_redis: Settings) -> None:
    async with producer(by_redis) as creator, mini_worker(by_redis) as full, mini_worker(by_redis) as free:
        await wait_until_idle(full, free)
        full.free.clear()
        full.source._presence.wake()  # it claims once more, and is busy then
        await until(lambda: isinstance(full.hints, Listener) and full.hints._receiving is None)
        for _ in range(10):
            ids = await create_jobs(creator.engine, 1)
            await assert_each_ran_once(creator.engine, ids, free)
            free.done.clear()
        assert full.done == []


async def test_a_worker_that_becomes_busy_returns_the_hint_to_the_broker(by_redis: Settings) -> None:
    async with producer(by_redis) as creator, mini_worker(by_redis) as full:
        await wait_until_idle(full)
        full.free.clear()
        ids = await create_jobs(creator.engine, 1)
        await until(lambda: full.tally["received", "given_back"] >= 1)
        async with mini_worker(by_redis) as free:
            await assert_each_ran_once(creator.engine, ids, free)


async def test_a_worker_that_stops_returns_its_hints_to_the_broker(by_redis: Settings) -> None:
    """Immediately: Redis would deliver them again only after half a minute."""
    async with producer(by_redis) as creator, mini_worker(by_redis) as leaving:
        await wait_until_idle(leaving)
        leaving.free.clear()
        ids = await create_jobs(creator.engine, 1)
        await until(lambda: leaving.hints._pending or leaving.tally["received", "given_back"])
    next_one = RedisBroker(by_redis.redis_url, kind_of_worker(None, None), Clock(), Ids())
    assert [delivery.hint.job for delivery in await next_one.receive(20, 10)] == ids
    await next_one.close()


async def test_a_job_that_outlasts_the_timeouts_of_the_broker_runs_once(
    by_redis: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K16: the claim acknowledges the hint; the broker does not know how long the job runs."""
    monkeypatch.setattr(redis, "DEAD_SECONDS", 0.1)
    monkeypatch.setattr(redis, "TAKE_OVER_SECONDS", 0.05)
    async with producer(by_redis) as creator, mini_worker(by_redis) as slow, mini_worker(by_redis) as other:
        await wait_until_idle(slow)
        other.free.clear()
        slow.pause = 1.5
        ids = await create_jobs(creator.engine, 3)
        await until(lambda: slow.claims and creator.dispatch)
        other.free.set()
        await assert_each_ran_once(creator.engine, ids, slow, other)


async def test_a_backlog_of_hints_costs_a_few_claims(by_redis: Settings) -> None:
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        worker.free.clear()
        worker.source._presence.wake()
        await until(lambda: isinstance(worker.hints, Listener) and worker.hints._receiving is None)
        assert creator.dispatch
        for _ in range(20):
            creator.dispatch.sender([Hint("default", f"t{number}") for number in range(100)])
            await until(lambda: creator.dispatch and not creator.dispatch.sender._waiting)
        claims = worker.claims
        worker.free.set()
        await until(lambda: worker.tally["received", "woke"] >= 2000)
        await asyncio.sleep(0.1)
        assert worker.claims <= claims + 6


# -- outages -----------------------------------------------------------------------------------------------------------


async def test_a_process_starts_and_jobs_run_while_redis_is_unreachable(
    by_redis: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """R003-116, F29"""
    settings = changed(by_redis, redis_url="redis://:hunter2@127.0.0.1:1/0")
    async with producer(settings) as creator, mini_worker(settings) as worker:
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 20), worker)
        await until(lambda: worker.dispatch.breaker.openings == 1)
        assert not worker.dispatch.up
        assert worker.hints.floor_seconds == settings.poll_seconds
    assert "hints go through the database" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "with its data"])
async def test_jobs_continue_through_the_database_until_redis_is_back(
    by_redis: Settings, redis_server: RedisServer, empty: bool
) -> None:
    """R003-115, R003-116, L6, F29: hints go through the database while Redis is down, then through Redis again."""
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        redis_server.stop(kill=True)
        ids = await create_jobs(creator.engine, 5)
        await assert_each_ran_once(creator.engine, ids, worker)
        assert creator.dispatch
        assert creator.dispatch.tally["sent", "database"] == 5
        redis_server.restart(empty=empty)
        await until(lambda: worker.dispatch.up)
        await wait_until_idle(worker)
        while not creator.dispatch.tally[
            "sent", "broker"
        ]:  # the circuit breaker tries again with the next hint after the pause
            ids += await create_jobs(creator.engine, 1)
            await asyncio.sleep(0.1)
        woke = worker.tally["received", "woke"]
        ids += await create_jobs(creator.engine, 1)
        await assert_each_ran_once(creator.engine, ids, worker)
        await until(lambda: worker.tally["received", "woke"] + worker.tally["received", "claimed"] > woke)


async def test_flushing_redis_costs_no_job(by_redis: Settings, redis_server: RedisServer) -> None:
    """F29, S13: only hints were flushed; a worker whose consumer group is gone polls the database."""
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        for _ in range(3):
            redis_server.flush()
            await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 2), worker)
            worker.done.clear()
        # Only streams that exist again: the flush may not have been noticed, so `up` says nothing.
        await until(lambda: redis_server.say("EXISTS", *STREAMS.values()) == len(STREAMS))
        for stream in STREAMS.values():
            redis_server.say("XGROUP", "DESTROY", stream, redis_server.say("XINFO", "GROUPS", stream)[0][1])
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 2), worker)


async def test_a_worker_that_cannot_reach_redis_polls(by_redis: Settings) -> None:
    """R003-116, L6: a network partition separates one worker from Redis, while producers send their hints there."""
    async with Proxy.to(by_redis.redis_url) as proxy:
        cut_off = changed(by_redis, redis_url=proxy.url, poll_seconds=0.3)
        async with producer(by_redis) as creator, mini_worker(cut_off, live=200) as worker:
            await wait_until_idle(worker)
            assert worker.hints.floor_seconds == FLOOR_MAX_SECONDS
            proxy.swallow(answers=True)
            ids = await create_jobs(creator.engine, 5)
            await assert_each_ran_once(creator.engine, ids, worker)
            assert creator.dispatch
            assert creator.dispatch.tally == {("sent", "broker"): 5}
            await until(lambda: worker.hints.floor_seconds == 0.3)
            await proxy.come_back()
            await until(lambda: worker.hints.floor_seconds == FLOOR_MAX_SECONDS)


async def test_after_twenty_interruptions_in_three_seconds_it_still_consumes(by_redis: Settings) -> None:
    """K17: a worker that is alive and consumes nothing after Redis came back."""
    async with Proxy.to(by_redis.redis_url) as proxy:
        flapping = changed(by_redis, redis_url=proxy.url)
        async with producer(by_redis) as creator, mini_worker(flapping) as worker:
            await wait_until_idle(worker)
            ids = []
            for _ in range(20):
                await proxy.go_away()
                await asyncio.sleep(0.075)
                ids += await create_jobs(creator.engine, 1)
                await proxy.come_back()
                await asyncio.sleep(0.075)
            await until(lambda: worker.dispatch.up)
            await assert_each_ran_once(creator.engine, ids, worker)
            await wait_until_idle(worker)
            woke = worker.tally["received", "woke"]
            ids += await create_jobs(creator.engine, 1)
            await assert_each_ran_once(creator.engine, ids, worker)
            assert worker.tally["received", "woke"] > woke, "a hint has found the job, not a poll"


async def test_jobs_continue_through_the_database_while_redis_hangs(
    by_redis: Settings, redis_server: RedisServer
) -> None:
    """F11: its connections stay open, but it does not respond."""
    settings = changed(by_redis, poll_seconds=0.3)
    async with producer(settings) as creator, mini_worker(settings) as worker:
        await wait_until_idle(worker)
        with redis_server.frozen():
            await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 5), worker)
            await until(lambda: creator.dispatch and not creator.dispatch.up and not worker.dispatch.up)
        await until(lambda: worker.dispatch.up)


async def test_garbage_in_the_streams_does_not_delay_jobs(by_redis: Settings, redis_server: RedisServer) -> None:
    """SEC-23: garbage is counted and dropped, and false hints do not keep a worker claiming."""
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        rng, ids, claims = random.Random(23), list[str](), worker.claims
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(60):
            for _ in range(20):
                false_hint = f'["default","a","0198c0de-0000-7000-8000-{rng.getrandbits(48):012x}",0]'
                message = rng.choice([rng.randbytes(rng.randrange(600)), b"[[[[", b'["q",0]', false_hint.encode()])
                redis_server.say("XADD", rng.choice(list(STREAMS.values())), "*", "hint", message)
            ids += await create_jobs(creator.engine, 1)
            await asyncio.sleep(0.02)
        took = loop.time() - begun
        await assert_each_ran_once(creator.engine, ids, worker)
        await until(lambda: worker.tally["received", "garbage"] > 100)
        assert worker.claims - claims < 60 * took + 3 * len(ids)
        assert worker.dispatch.up


async def test_the_breaker_limits_attempts_to_send_to_a_full_redis(
    by_redis: Settings, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """R003-115: each attempt costs a log line and a poll of every idle worker."""
    async with mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        redis_server.say("CONFIG", "SET", "maxmemory", "1")
        began = time.monotonic()
        for _ in range(200):
            worker.dispatch.sender([Hint("unserved", "b")])
            await asyncio.sleep(0.02)
        assert worker.dispatch.breaker.openings < 3 * (time.monotonic() - began)
        assert "maxmemory" in caplog.text


async def test_the_breaker_limits_attempts_to_read_without_permission(
    by_redis: Settings, redis_server: RedisServer
) -> None:
    """R003-115: the Redis user may connect, but not read streams."""
    redis_server.say("ACL", "SETUSER", "holdfast", "on", "nopass", "~*", "&*", "+@all", "-xreadgroup")
    settings = changed(by_redis, redis_url=by_redis.redis_url.replace("redis://", "redis://holdfast:any@"))
    try:
        async with producer(settings) as creator, mini_worker(settings) as worker:
            began = time.monotonic()
            await asyncio.sleep(4)
            assert worker.dispatch.breaker.openings < 3 * (time.monotonic() - began)
            await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 5), worker)
    finally:
        redis_server.say("ACL", "DELUSER", "holdfast")


async def test_the_buffer_of_unsent_hints_is_bounded(by_redis: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async with producer(by_redis) as creator:
        assert creator.dispatch
        for _ in range(300):
            creator.dispatch.sender([Hint("q")] * 100)
        assert len(creator.dispatch.sender._waiting) == 10_000
        assert creator.dispatch.tally["sent", "dropped"] == 20_000


async def test_a_producer_sends_its_hints_before_it_closes(by_redis: Settings) -> None:
    async with mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        async with producer(by_redis) as creator:
            ids = await create_jobs(creator.engine, 3)
        await assert_each_ran_once(worker.engine, ids, worker)


async def test_a_process_stops_while_redis_hangs(by_redis: Settings, redis_server: RedisServer) -> None:
    """F11: with a pending hint and an unsent one."""
    with ExitStack() as frozen:
        async with asyncio.timeout(25), producer(by_redis) as creator, mini_worker(by_redis) as worker:
            await wait_until_idle(worker)
            worker.free.clear()
            await create_jobs(creator.engine, 1)
            await until(lambda: worker.hints._pending or worker.tally["received", "given_back"])
            frozen.enter_context(redis_server.frozen())
            await create_jobs(creator.engine, 1)


@pytest.mark.parametrize("how", ["work.enqueue_sync()", "asyncio.run(main())"], ids=["sync", "async"])
async def test_a_script_that_exits_without_closing_its_app_sends_its_hint(
    by_redis: Settings, tmp_path: Path, how: str
) -> None:
    """Without the hint, the job would wait for the next poll, up to a minute."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + how)
    named = {"DATABASE_URL": by_redis.database_url, "DISPATCH": "redis", "REDIS_URL": by_redis.redis_url}
    environment = os.environ | {f"HOLDFAST_{name}": value for name, value in named.items()}
    async with mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        process = await asyncio.create_subprocess_exec(sys.executable, str(script), env=environment)
        assert await process.wait() == 0
        await until(lambda: worker.done)


SCRIPT = """
import asyncio
from holdfast import App

app = App()

@app.job()
async def work() -> None: ...

async def main() -> None:
    await work.enqueue()

"""


async def test_closing_leaves_no_tasks_behind(by_redis: Settings) -> None:
    before = len(asyncio.all_tasks())
    async with producer(by_redis) as creator, mini_worker(by_redis) as worker:
        await wait_until_idle(worker)
        await assert_each_ran_once(creator.engine, await create_jobs(creator.engine, 10), worker)
    await until(lambda: len(asyncio.all_tasks()) <= before)
