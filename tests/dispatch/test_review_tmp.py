import asyncio, subprocess, sys, os, logging
import pytest
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.dispatch.redis import RedisBroker, STREAMS
from holdfast.model.hint import Hint
from holdfast.settings import Settings
from tests.dispatch.stories import *
from tests.dispatch.test_stories import by_redis, but
from tests.dispatch.test_redis import brokers, Brokers, received, pending, NORMAL
from tests.servers.redis import RedisServer


async def test_cut_short(brokers, redis_server):
    busy, idle_ = await brokers(), await brokers()
    busy._take_over_at = idle_._take_over_at = 1e18
    receiving = asyncio.create_task(busy.receive(5, 10))
    await asyncio.sleep(0.1)
    redis_server.say("XADD", NORMAL, "*", "hint", '["q",null,null,0]')
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    assert await received(idle_, 3) == [Hint("q")]


async def test_stops_with_hint(by_redis):
    async with creating(by_redis) as creator, hand(by_redis) as other:
        await idle(other)
        async with hand(by_redis) as leaving:
            await idle(leaving)
            other.busy.clear()
            other.source._presence.heard()
            await until(lambda: other.hints._receiving is None)
            leaving.busy.clear()
            ids = await jobs(creator.engine, 1)
            await until(lambda: leaving.hints._unseen)
        assert await leaving_ok(other)
        await all_done(creator.engine, ids, other)

async def leaving_ok(other):
    other.busy.set()
    return True


async def test_full_redis_log_noise(by_redis, redis_server, caplog):
    caplog.set_level(logging.INFO)
    async with hand(by_redis) as worker:
        await idle(worker)
        redis_server.say("CONFIG", "SET", "maxmemory", "1")
        claims = worker.claims
        for _ in range(250):
            worker.dispatch.sender([Hint("nobody")])
            await asyncio.sleep(0.02)
        lines = [r for r in caplog.records if "broker" in r.getMessage()]
        print(len(lines), worker.dispatch.breaker.openings, worker.claims - claims)
        assert len(lines) < 12


async def test_receive_always_fails(by_redis, redis_server, caplog):
    caplog.set_level(logging.INFO)
    redis_server.say(*"ACL SETUSER holdfast on >s3cret ~holdfast:* &holdfast:* -@all +@connection +@stream +@pubsub +@read +set +del +eval -xreadgroup".split())
    s = but(by_redis, redis_url=by_redis.redis_url.replace("redis://", "redis://holdfast:s3cret@"))
    try:
        async with hand(s) as worker:
            await asyncio.sleep(5)
            lines = [r for r in caplog.records if "broker" in r.getMessage()]
            print(len(lines), worker.dispatch.breaker.openings, worker.claims)
            assert len(lines) < 16
    finally:
        redis_server.say("ACL", "DELUSER", "holdfast")

SCRIPT = '''
import sys
from holdfast import App
app = App()
@app.job()
def a() -> None: ...
a.enqueue_sync()
'''
ASYNC = '''
import asyncio
from holdfast import App
app = App()
@app.job()
async def a() -> None: ...
async def main():
    await a.enqueue()
asyncio.run(main())
'''
@pytest.mark.parametrize("script", [SCRIPT, ASYNC], ids=["sync", "async"])
async def test_short_script(by_redis, redis_server, script, tmp_path):
    (tmp_path / "s.py").write_text(script)
    env = os.environ | {"HOLDFAST_DATABASE_URL": by_redis.database_url, "HOLDFAST_DISPATCH": "redis", "HOLDFAST_REDIS_URL": by_redis.redis_url}
    lost = 0
    for _ in range(5):
        before = redis_server.say("XLEN", NORMAL)
        done = await asyncio.to_thread(subprocess.run, [sys.executable, str(tmp_path / "s.py")], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lost += redis_server.say("XLEN", NORMAL) == before
    assert lost == 0, f"{lost} of 5 lost\n{done.stderr}"
