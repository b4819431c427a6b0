"""Jobs started by hints through a real Redis, and what happens to them when Redis has a bad day. R003-113..117, L6."""

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
from tests.dispatch.stories import all_done, creating, ended, hand, idle, jobs, until
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

NORMAL = STREAMS["normal"]


@pytest.fixture
def by_redis(fresh_postgres_url: str, redis_server: RedisServer) -> Settings:
    """Nobody looks by himself for a minute: what is found, a hint has found."""
    return Settings(
        database_url=fresh_postgres_url, dispatch="redis", redis_url=redis_server.url, poll_seconds=FLOOR_MAX_SECONDS
    )


def but(settings: Settings, **changes: Any) -> Settings:
    return Settings(**{name: getattr(settings, name) for name in settings.__struct_fields__} | changes)


# -- while all is well -------------------------------------------------------------------------------------------------


async def test_an_idle_worker_starts_a_job_because_redis_said_so(by_redis: Settings) -> None:
    """R003-113, R003-114"""
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        await all_done(creator.engine, await jobs(creator.engine, 1), worker)
        assert worker.tally["received", "woke"] == 1
        assert creator.dispatch
        assert creator.dispatch.tally == {("sent", "broker"): 1}, "and nothing went by the database"


async def test_in_both_stores(store_url: str, redis_server: RedisServer) -> None:
    settings = Settings(database_url=store_url, dispatch="redis", redis_url=redis_server.url)
    async with creating(settings) as creator, hand(settings) as worker:
        await until(lambda: worker.dispatch.up)
        await all_done(creator.engine, await jobs(creator.engine, 50), worker)
        await until(lambda: creator.dispatch and creator.dispatch.tally["sent", "broker"] == 50)


async def test_in_hybrid_mode_hints_go_both_ways_and_polling_stays(by_redis: Settings) -> None:
    """R003-113"""
    settings = but(by_redis, dispatch="hybrid", poll_seconds=7.0)
    async with creating(settings) as creator, hand(settings, live=50) as worker:
        await idle(worker)
        assert worker.hints.floor_seconds == 7.0
        await all_done(creator.engine, await jobs(creator.engine, 1), worker)
        assert creator.dispatch
        await until(lambda: creator.dispatch and creator.dispatch.tally["sent", "broker"] == 1)
        assert creator.dispatch.tally["sent", "database"] == 1


async def test_the_more_workers_live_the_more_seldom_each_looks_by_itself(by_redis: Settings) -> None:
    settings = but(by_redis, poll_seconds=1.5)
    async with hand(settings, live=4) as few, hand(settings, live=500) as many:
        await until(lambda: few.dispatch.up and many.dispatch.up)
        assert (few.hints.floor_seconds, many.hints.floor_seconds) == (6.0, FLOOR_MAX_SECONDS)
        many.dispatch.breaker.failed("a test says so")
        assert many.hints.floor_seconds == 1.5, "as without a broker"


async def test_workers_of_different_kinds_do_not_take_each_others_hints(by_redis: Settings) -> None:
    async with AsyncExitStack() as stack:
        creator = await stack.enter_async_context(creating(by_redis))
        mail = await stack.enter_async_context(hand(by_redis, queues=["mail"]))
        video = await stack.enter_async_context(hand(by_redis, queues=["video"]))
        typed = await stack.enter_async_context(hand(by_redis, queues=["other"], types=["b"]))
        await idle(mail, video, typed)
        claims = mail.claims
        for queue in ("video",) * 5 + ("mail",):
            ids = await jobs(creator.engine, 1, queue=queue)
            await all_done(creator.engine, ids, mail if queue == "mail" else video)
        (unknown,) = await jobs(creator.engine, 1, queue="other")
        (known,) = await jobs(creator.engine, 1, queue="other", type="b")
        await all_done(creator.engine, [known], typed)
        assert mail.claims <= claims + 2, "a hint about another queue costs no query"
        assert typed.tally["received", "others"] >= 1
        assert (await creator.engine.reads.get(unknown)).state == "queued", "an old worker leaves what it does not know"


async def test_a_hint_about_a_job_that_this_process_has_claimed_costs_no_query(by_redis: Settings) -> None:
    """R000-5: by job id."""
    async with hand(by_redis) as worker:
        await idle(worker)
        await all_done(worker.engine, await jobs(worker.engine, 1), worker)
        await until(lambda: worker.tally["received", "claimed"] + worker.tally["received", "woke"] == 1)
        await idle(worker)
        before, claims = worker.tally["received", "claimed"], worker.claims
        worker.dispatch.sender([Hint("default", "a", worker.done[0])] * 20)
        await until(lambda: worker.tally["received", "claimed"] == before + 20)
        assert worker.claims == claims


async def test_duplicates_and_unknown_jobs_are_harmless(by_redis: Settings) -> None:
    """R000-4, R000-5, R000-34..37: a message is a trigger, not the job."""
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        assert creator.dispatch
        ids = await jobs(creator.engine, 20)
        again = [Hint("default", "a", job) for job in ids * 3]
        unknown = [Hint("default", "a", "0198c0de-0000-7000-8000-000000000001")] * 10
        random.Random(3).shuffle(again)
        creator.dispatch.sender(again + unknown)
        await all_done(creator.engine, ids, worker)
        await until(lambda: sum(worker.tally[key] for key in worker.tally if key[0] == "received") >= 60)
        assert await ended(creator.engine, ids) == {"succeeded after 1": 20}


async def test_a_job_that_failed_and_is_due_again_is_hinted_at_anew(by_redis: Settings) -> None:
    """What this process gave up, it does not call old news."""
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        worker.busy.clear()
        (job,) = await jobs(creator.engine, 1)
        ((lease, _),) = await worker.source.claim(1, queues=None, types=None)
        await worker.source.fail([Fail(id=lease.id, token=lease.token, code="E_X", retry_after_seconds=0)])
        worker.busy.set()
        await until(lambda: worker.done == [job])
        assert await ended(creator.engine, [job]) == {"succeeded after 2": 1}


async def test_a_delayed_job_starts_though_nobody_knew_of_it_in_time(by_redis: Settings) -> None:
    """Whoever sweeps makes it claimable when its time has come, and that is a hint again."""
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        await creator.engine.create_many([NewJob(type="a", delay_seconds=0.5)])
        worker.busy.clear()  # whoever heard of it first has no time
        await asyncio.sleep(0.6)
        async with hand(by_redis) as other:
            await idle(other)
            await creator.engine.maintenance.requeue_due()
            await until(lambda: other.done or worker.done)


# -- a worker that has no time -----------------------------------------------------------------------------------------


async def test_a_busy_worker_leaves_the_hints_to_others(by_redis: Settings) -> None:
    async with creating(by_redis) as creator, hand(by_redis) as full, hand(by_redis) as free:
        await idle(full, free)
        full.busy.clear()
        full.source._presence.wake()  # it looks once more, and then is busy
        await until(lambda: isinstance(full.hints, Listener) and full.hints._receiving is None)
        for _ in range(10):
            ids = await jobs(creator.engine, 1)
            await all_done(creator.engine, ids, free)
            free.done.clear()


async def test_a_hint_that_comes_just_when_it_got_busy_is_given_back(by_redis: Settings) -> None:
    async with creating(by_redis) as creator, hand(by_redis) as full:
        await idle(full)
        full.busy.clear()
        ids = await jobs(creator.engine, 1)
        await until(lambda: full.tally["received", "given_back"] >= 1)
        async with hand(by_redis) as free:
            await all_done(creator.engine, ids, free)


async def test_a_worker_that_stops_leaves_its_hints_to_others(by_redis: Settings) -> None:
    """At once: it lives no longer, but nobody would call it dead for half a minute."""
    async with creating(by_redis) as creator, hand(by_redis) as leaving:
        await idle(leaving)
        leaving.busy.clear()
        ids = await jobs(creator.engine, 1)
        await until(lambda: leaving.hints._pending or leaving.tally["received", "given_back"])
    next_one = RedisBroker(by_redis.redis_url, kind_of_worker(None, None), Clock(), Ids())
    assert [delivery.hint.job for delivery in await next_one.receive(20, 10)] == ids
    await next_one.close()


async def test_a_job_longer_than_every_timeout_of_the_broker_runs_once(
    by_redis: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K16: the hint is settled by the claim, and the job is not the hint's."""
    monkeypatch.setattr(redis, "DEAD_SECONDS", 0.1)
    monkeypatch.setattr(redis, "TAKE_OVER_SECONDS", 0.05)
    async with creating(by_redis) as creator, hand(by_redis) as slow, hand(by_redis) as other:
        await idle(slow)
        other.busy.clear()
        slow.pause = 1.5
        ids = await jobs(creator.engine, 3)
        await until(lambda: slow.claims and creator.dispatch)
        other.busy.set()
        await all_done(creator.engine, ids, slow, other)


async def test_what_piled_up_while_all_were_busy_costs_one_look(by_redis: Settings) -> None:
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        worker.busy.clear()
        worker.source._presence.wake()
        await until(lambda: isinstance(worker.hints, Listener) and worker.hints._receiving is None)
        assert creator.dispatch
        for _ in range(20):
            creator.dispatch.sender([Hint("default", f"t{number}") for number in range(100)])
            await until(lambda: creator.dispatch and not creator.dispatch.sender._waiting)
        claims = worker.claims
        worker.busy.set()
        await until(lambda: worker.tally["received", "woke"] >= 2000)
        await asyncio.sleep(0.1)
        assert worker.claims <= claims + 6


# -- trouble -----------------------------------------------------------------------------------------------------------


async def test_a_process_starts_and_jobs_run_though_redis_is_not_there(
    by_redis: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """R003-116, F29"""
    settings = but(by_redis, redis_url="redis://:hunter2@127.0.0.1:1/0")
    async with creating(settings) as creator, hand(settings) as worker:
        await all_done(creator.engine, await jobs(creator.engine, 20), worker)
        await until(lambda: worker.dispatch.breaker.openings == 1)
        assert not worker.dispatch.up
        assert worker.hints.floor_seconds == settings.poll_seconds
    assert "hints go through the database" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "as it was"])
async def test_redis_is_killed_and_comes_back(by_redis: Settings, redis_server: RedisServer, empty: bool) -> None:
    """R003-115, R003-116, L6, F29: jobs go on by the database, and then by Redis again."""
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        redis_server.stop(kill=True)
        ids = await jobs(creator.engine, 5)
        await all_done(creator.engine, ids, worker)
        assert creator.dispatch
        assert creator.dispatch.tally["sent", "database"] == 5
        redis_server.restart(empty=empty)
        await until(lambda: worker.dispatch.up)
        await idle(worker)
        while not creator.dispatch.tally["sent", "broker"]:  # it tries again with the next hint after the pause
            ids += await jobs(creator.engine, 1)
            await asyncio.sleep(0.1)
        woke = worker.tally["received", "woke"]
        ids += await jobs(creator.engine, 1)
        await all_done(creator.engine, ids, worker)
        await until(lambda: worker.tally["received", "woke"] + worker.tally["received", "claimed"] > woke)


async def test_flushed_redis_is_rebuilt_from_the_database(by_redis: Settings, redis_server: RedisServer) -> None:
    """F29, S13: what was flushed were hints; whoever finds his group gone looks into the database."""
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        for _ in range(3):
            redis_server.flush()
            await all_done(creator.engine, await jobs(creator.engine, 2), worker)
            worker.done.clear()
        await until(lambda: worker.dispatch.up)
        for stream in STREAMS.values():
            redis_server.say("XGROUP", "DESTROY", stream, redis_server.say("XINFO", "GROUPS", stream)[0][1])
        await all_done(creator.engine, await jobs(creator.engine, 2), worker)


async def test_a_worker_that_cannot_hear_redis_polls(by_redis: Settings) -> None:
    """R003-116, L6: the network is split between one worker and Redis, and everybody else sends there."""
    async with Proxy.to(by_redis.redis_url) as proxy:
        cut_off = but(by_redis, redis_url=proxy.url, poll_seconds=0.3)
        async with creating(by_redis) as creator, hand(cut_off, live=200) as worker:
            await idle(worker)
            assert worker.hints.floor_seconds == FLOOR_MAX_SECONDS
            proxy.swallow(answers=True)
            ids = await jobs(creator.engine, 5)
            await all_done(creator.engine, ids, worker)
            assert creator.dispatch
            assert creator.dispatch.tally == {("sent", "broker"): 5}
            await until(lambda: worker.hints.floor_seconds == 0.3)
            await proxy.come_back()
            await until(lambda: worker.hints.floor_seconds == FLOOR_MAX_SECONDS)


async def test_after_twenty_interruptions_in_three_seconds_it_still_consumes(by_redis: Settings) -> None:
    """K17: a worker that is alive and consumes nothing after Redis came back."""
    async with Proxy.to(by_redis.redis_url) as proxy:
        flapping = but(by_redis, redis_url=proxy.url)
        async with creating(by_redis) as creator, hand(flapping) as worker:
            await idle(worker)
            ids = []
            for _ in range(20):
                await proxy.go_away()
                await asyncio.sleep(0.075)
                ids += await jobs(creator.engine, 1)
                await proxy.come_back()
                await asyncio.sleep(0.075)
            await until(lambda: worker.dispatch.up)
            await all_done(creator.engine, ids, worker)
            await idle(worker)
            woke = worker.tally["received", "woke"]
            ids += await jobs(creator.engine, 1)
            await all_done(creator.engine, ids, worker)
            assert worker.tally["received", "woke"] > woke, "by a hint, not by luck"


async def test_a_redis_that_hangs_is_left_alone(by_redis: Settings, redis_server: RedisServer) -> None:
    """F11: its connections stay open, and it answers nothing."""
    settings = but(by_redis, poll_seconds=0.3)
    async with creating(settings) as creator, hand(settings) as worker:
        await idle(worker)
        with redis_server.frozen():
            await all_done(creator.engine, await jobs(creator.engine, 5), worker)
            await until(lambda: creator.dispatch and not creator.dispatch.up and not worker.dispatch.up)
        await until(lambda: worker.dispatch.up)


async def test_garbage_in_the_streams_delays_nobody_for_long(by_redis: Settings, redis_server: RedisServer) -> None:
    """SEC-23: it is counted and dropped, and hints about nothing do not keep a worker looking."""
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        chance, ids, claims = random.Random(23), list[str](), worker.claims
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() - begun < 3:
            for _ in range(20):
                lie = f'["default","a","0198c0de-0000-7000-8000-{chance.getrandbits(48):012x}",0]'
                trash = chance.choice([chance.randbytes(chance.randrange(600)), b"[[[[", b'["q",0]', lie.encode()])
                redis_server.say("XADD", chance.choice(list(STREAMS.values())), "*", "hint", trash)
            ids += await jobs(creator.engine, 1)
            await asyncio.sleep(0.02)
        took = loop.time() - begun
        await all_done(creator.engine, ids, worker)
        await until(lambda: worker.tally["received", "garbage"] > 100)
        assert worker.claims - claims < 60 * took + 3 * len(ids)
        assert worker.dispatch.up


async def test_a_redis_that_can_be_read_and_is_full_is_tried_seldom(
    by_redis: Settings, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """R003-115: each time costs a line in the log, and a look of all who wait."""
    async with hand(by_redis) as worker:
        await idle(worker)
        redis_server.say("CONFIG", "SET", "maxmemory", "1")
        began = time.monotonic()
        for _ in range(200):
            worker.dispatch.sender([Hint("nobody", "b")])
            await asyncio.sleep(0.02)
        assert worker.dispatch.breaker.openings < 3 * (time.monotonic() - began)
        assert "maxmemory" in caplog.text


async def test_a_redis_that_greets_us_and_refuses_to_be_read_is_tried_seldom(
    by_redis: Settings, redis_server: RedisServer
) -> None:
    """R003-115: as a user who may do too little."""
    redis_server.say("ACL", "SETUSER", "holdfast", "on", "nopass", "~*", "&*", "+@all", "-xreadgroup")
    settings = but(by_redis, redis_url=by_redis.redis_url.replace("redis://", "redis://holdfast:any@"))
    try:
        async with creating(settings) as creator, hand(settings) as worker:
            began = time.monotonic()
            await asyncio.sleep(4)
            assert worker.dispatch.breaker.openings < 3 * (time.monotonic() - began)
            await all_done(creator.engine, await jobs(creator.engine, 5), worker)
    finally:
        redis_server.say("ACL", "DELUSER", "holdfast")


async def test_hints_that_cannot_be_sent_do_not_pile_up(by_redis: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async with creating(by_redis) as creator:
        assert creator.dispatch
        for _ in range(300):
            creator.dispatch.sender([Hint("q")] * 100)
        assert len(creator.dispatch.sender._waiting) == 10_000
        assert creator.dispatch.tally["sent", "dropped"] == 20_000


async def test_what_was_created_at_the_last_moment_is_told_before_the_end(by_redis: Settings) -> None:
    async with hand(by_redis) as worker:
        await idle(worker)
        async with creating(by_redis) as creator:
            ids = await jobs(creator.engine, 3)
        await all_done(worker.engine, ids, worker)


async def test_a_process_ends_though_redis_hangs(by_redis: Settings, redis_server: RedisServer) -> None:
    """F11: whatever it has in hand."""
    with ExitStack() as frozen:
        async with asyncio.timeout(25), creating(by_redis) as creator, hand(by_redis) as worker:
            await idle(worker)
            worker.busy.clear()
            await jobs(creator.engine, 1)
            await until(lambda: worker.hints._pending or worker.tally["received", "given_back"])
            frozen.enter_context(redis_server.frozen())
            await jobs(creator.engine, 1)


@pytest.mark.parametrize("how", ["work.enqueue_sync()", "asyncio.run(main())"], ids=["sync", "async"])
async def test_a_script_that_ends_at_once_has_told_of_its_job(by_redis: Settings, tmp_path: Path, how: str) -> None:
    """It has not closed its app; found by looking, the job might wait for a minute."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + how)
    named = {"DATABASE_URL": by_redis.database_url, "DISPATCH": "redis", "REDIS_URL": by_redis.redis_url}
    environment = os.environ | {f"HOLDFAST_{name}": value for name, value in named.items()}
    async with hand(by_redis) as worker:
        await idle(worker)
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


async def test_no_task_outlives_its_process(by_redis: Settings) -> None:
    before = len(asyncio.all_tasks())
    async with creating(by_redis) as creator, hand(by_redis) as worker:
        await idle(worker)
        await all_done(creator.engine, await jobs(creator.engine, 10), worker)
    await until(lambda: len(asyncio.all_tasks()) <= before)
