"""Redis as a broker: three streams, a group for each kind of worker, nothing in it that must last. R003-114."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.dispatch import redis, redis_cleanup
from holdfast.dispatch.broker import BrokerError, ReceivedHint, SubscriptionLost
from holdfast.dispatch.messages import written
from holdfast.dispatch.redis import LENGTH_MAX, STREAMS, RedisBroker
from holdfast.dispatch.redis_connection import RedisConnection
from holdfast.ids import Ids
from holdfast.model.hint import Hint
from tests.docs.pages import PAGES
from tests.servers.certificate import certify
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

JOB = "0198c0de-0000-7000-8000-00000000000{}"
NORMAL = STREAMS["normal"]
PATIENCE_SECONDS = 20.0
ACL = next(line for line in PAGES["docs/operate/brokers.md"].splitlines() if line.startswith("ACL SETUSER"))


class Brokers:
    """Each closed in the end."""

    def __init__(self, url: str) -> None:
        self.url, self.made = url, list[RedisBroker]()

    async def __call__(self, kind: str | None = "kind", url: str | None = None) -> RedisBroker:
        broker = RedisBroker(url or self.url, kind, Clock(), Ids())
        self.made.append(broker)
        await broker.open()
        return broker


@pytest.fixture
async def brokers(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Brokers]:
    """On a busy machine Redis may take longer than a worker would wait for it."""
    monkeypatch.setitem(RedisConnection.call.__kwdefaults__, "seconds", PATIENCE_SECONDS)
    brokers = Brokers(redis_server.url)
    yield brokers
    for broker in brokers.made:
        await broker.close()


async def received(broker: RedisBroker, seconds: float = 0.05) -> list[Hint]:
    """What comes now, settled."""
    found = await broker.receive(seconds, 100)
    await broker.ack(found)
    return [delivery.hint for delivery in found]


def pending(server: RedisServer, group: str = "kind") -> int:
    return sum(server.say("XPENDING", stream, group)["pending"] for stream in STREAMS.values())


def names(listed: list[list[Any]]) -> list[str]:
    return [each[each.index(b"name") + 1].decode() for each in listed]


async def test_hints_are_received_by_priority(brokers: Brokers) -> None:
    """R003-114: high, normal, low."""
    sender, reader = await brokers(None), await brokers()
    hints = [Hint("q", "t", JOB.format(index), priority) for index, priority in enumerate([-5, 0, 50, 0, -1, 1])]
    await sender.send(hints)
    assert [hint.priority for hint in await received(reader)] == [50, 1, 0, 0, -5, -1]


async def test_each_kind_of_worker_receives_each_hint_once(brokers: Brokers) -> None:
    sender, first, second, other = [await brokers(kind) for kind in (None, "kind", "kind", "other")]
    hints = [Hint("q", "t", JOB.format(index)) for index in range(4)]
    for hint in hints:
        await sender.send([hint])
    shared = [*(await received(first)), *(await received(second))]
    assert sorted(shared) == hints
    assert await received(other) == hints


async def test_a_new_kind_of_worker_receives_only_new_hints(brokers: Brokers) -> None:
    sender = await brokers(None)
    await sender.send([Hint("old")])
    reader = await brokers()
    await sender.send([Hint("new")])
    assert await received(reader) == [Hint("new")]


async def test_receive_waits_until_its_timeout(brokers: Brokers) -> None:
    sender, reader = await brokers(None), await brokers()
    assert await received(reader, 0.01) == []
    assert await received(reader, 0) == []
    waiting = asyncio.create_task(received(reader, 20))
    await asyncio.sleep(0.05)
    await sender.send([Hint("q")])
    assert await waiting == [Hint("q")]


async def test_a_pending_hint_of_a_dead_worker_is_claimed_by_another(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L6: nothing stays with a dead consumer."""
    monkeypatch.setattr(redis, "DEAD_SECONDS", 0.05)
    sender, dead, alive = await brokers(None), await brokers(), await brokers()
    await sender.send([Hint("q", "t", JOB.format(1))])
    assert len(await dead.receive(1, 10)) == 1
    await asyncio.sleep(0.1)
    assert await received(alive) == [Hint("q", "t", JOB.format(1))]


async def test_an_acknowledged_hint_is_not_delivered_again(
    brokers: Brokers, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "DEAD_SECONDS", 0.001)
    monkeypatch.setattr(redis, "TAKE_OVER_SECONDS", 0.0)
    sender, reader = await brokers(None), await brokers()
    await sender.send([Hint("q")])
    assert await received(reader) == [Hint("q")]
    assert await received(reader) == []
    assert pending(redis_server) == 0


async def test_a_nacked_hint_is_delivered_to_another_worker(brokers: Brokers, redis_server: RedisServer) -> None:
    sender, full, free = await brokers(None), await brokers(), await brokers()
    await sender.send([Hint("q", priority=7)])
    await full.nack(await full.receive(1, 10))
    assert await received(free) == [Hint("q", priority=7)]
    assert pending(redis_server) == 0


async def test_a_hint_that_arrives_during_a_cancellation_goes_to_another_worker(
    brokers: Brokers, redis_server: RedisServer
) -> None:
    """It has the hint by then, and nobody would look for that within half a minute."""
    busy, idle = await brokers(), await brokers()
    (kept,) = await delivered(busy, redis_server, Hint("kept"))
    receiving = asyncio.create_task(busy.receive(20, 10))
    await asyncio.sleep(0.1)
    redis_server.say("XADD", NORMAL, "*", "hint", written(Hint("q")))  # busy hears nothing of it before
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    assert await received(idle, 20) == [Hint("q")]
    assert pending(redis_server) == 1, "what it has in hand stays there"
    await busy.ack([kept])
    assert pending(redis_server) == 0


async def delivered(broker: RedisBroker, server: RedisServer, hint: Hint) -> list[ReceivedHint]:
    server.say("XADD", NORMAL, "*", "hint", written(hint))
    return await broker.receive(20, 1)


async def test_garbage_is_counted_and_deleted(brokers: Brokers, redis_server: RedisServer) -> None:
    """SEC-23"""
    sender, reader = await brokers(None), await brokers()
    for fields in (["x", "y"], ["hint", b"\xff"], ["hint", "[" * 5000], ["hint", ""], ["a", "1", "b", "2"]):
        redis_server.say("XADD", NORMAL, "*", *fields)
    await sender.send([Hint("q")])
    assert await received(reader) == [Hint("q")]
    assert reader.garbage == 5
    assert pending(redis_server) == 0


async def test_a_stream_without_readers_is_trimmed(brokers: Brokers, redis_server: RedisServer) -> None:
    sender = await brokers(None)
    for _ in range(30):
        await sender.send([Hint("q", "t", JOB.format(1))] * 500)
    assert redis_server.say("XLEN", NORMAL) < LENGTH_MAX * 1.1


async def test_trimmed_hints_are_removed_from_the_pending_list(
    brokers: Brokers, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K30: trimmed entries linger among the pending ones; deleting a consumer loses its own."""
    monkeypatch.setattr(redis, "DEAD_SECONDS", 0.001)
    sender, dead, alive = await brokers(None), await brokers(), await brokers()
    await sender.send([Hint("q", "t", JOB.format(index)) for index in range(5)])
    assert len(await dead.receive(1, 10)) == 5
    redis_server.say("XTRIM", NORMAL, "MAXLEN", 0)
    await asyncio.sleep(0.01)
    assert await received(alive) == [], "gone; what they were about is in the database"
    assert pending(redis_server) == 0
    await sender.send([Hint("new")])
    assert await received(alive) == [Hint("new")]


async def test_a_deleted_consumer_continues_to_receive(brokers: Brokers, redis_server: RedisServer) -> None:
    """K30"""
    sender, reader = await brokers(None), await brokers()
    for stream in STREAMS.values():
        redis_server.say("XGROUP", "DELCONSUMER", stream, "kind", reader._reader)
    await sender.send([Hint("q")])
    assert await received(reader) == [Hint("q")]


@pytest.mark.parametrize(
    "command",
    [["FLUSHALL"], ["DEL", NORMAL], ["XGROUP", "DESTROY", STREAMS["low"], "kind"]],
    ids=["flushed", "stream", "group"],
)
async def test_a_deleted_stream_or_group_is_reported_and_created_again(
    brokers: Brokers, redis_server: RedisServer, command: list[Any]
) -> None:
    """F29"""
    sender, reader = await brokers(None), await brokers()
    redis_server.say(*command)
    with pytest.raises(SubscriptionLost):
        await reader.receive(0.05, 10)
    await reader.open()
    await sender.send([Hint("q")])
    assert await received(reader) == [Hint("q")]


async def test_deleting_a_group_ends_a_waiting_receive_with_an_error(
    brokers: Brokers, redis_server: RedisServer
) -> None:
    """F29"""
    reader = await brokers()
    waiting = asyncio.create_task(reader.receive(0.5, 10))
    await asyncio.sleep(0.1)
    redis_server.flush()
    await asyncio.gather(waiting, return_exceptions=True)  # an older Redis says it at the next occasion only
    with pytest.raises(SubscriptionLost):
        await reader.receive(0.05, 10)


async def test_an_error_of_redis_is_raised_as_a_broker_error(
    brokers: Brokers, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F29: full, read-only, of another type, paused."""
    sender = await brokers(None)

    async def refused(match: str) -> None:
        with pytest.raises(BrokerError, match=match):
            await sender.send([Hint("q")])

    redis_server.say("CONFIG", "SET", "maxmemory", "1")
    await refused("maxmemory")
    redis_server.say("CONFIG", "SET", "maxmemory", "0")
    redis_server.say("REPLICAOF", "127.0.0.1", "1")
    await refused("read only")
    redis_server.say("REPLICAOF", "NO", "ONE")
    redis_server.say("SET", NORMAL, "a text")
    await refused("WRONGTYPE")
    redis_server.flush()
    redis_server.say("CLIENT", "PAUSE", "1700", "ALL")
    with monkeypatch.context() as impatient:
        impatient.setitem(RedisConnection.call.__kwdefaults__, "seconds", 0.5)
        await refused("timed out")
    await sender.send([Hint("q")])


async def test_every_call_to_a_silent_server_times_out(brokers: Brokers, redis_server: RedisServer) -> None:
    async with Proxy.to(redis_server.url) as proxy:
        reader = await brokers(url=proxy.url)
        proxy.swallow(answers=True)
        calls = [reader.send([Hint("q")]), reader.receive(0.05, 10), reader.open()]
        async with asyncio.timeout(60):
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in ended] == [BrokerError] * 3
        await proxy.come_back()
        await reader.open()
        await reader.send([Hint("q")])
        assert Hint("q") in await received(reader)


async def test_hints_continue_after_redis_restarts_empty(brokers: Brokers, redis_server: RedisServer) -> None:
    """F29: kill -9, restart empty."""
    sender, reader = await brokers(None), await brokers()
    redis_server.restart(kill=True, empty=True)
    with pytest.raises(BrokerError):
        await reader.receive(0.05, 10)
    await reader.open()
    await sender.send([Hint("q")])
    assert await received(reader) == [Hint("q")]


async def test_a_connection_closed_by_the_idle_timeout_is_no_failure(
    brokers: Brokers, redis_server: RedisServer
) -> None:
    sender, reader = await brokers(None), await brokers()
    redis_server.say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await sender.send([Hint("q")])
    with pytest.raises(BrokerError):
        await reader.receive(0.01, 1)  # it may have missed something, and must look
    assert await received(reader) == [Hint("q")]


async def test_an_unreachable_server_is_an_error_without_the_password(redis_server: RedisServer) -> None:
    broker = RedisBroker("redis://somebody:hunter2@127.0.0.1:1/0", None, Clock(), Ids())
    with pytest.raises(BrokerError) as refused:
        await broker.open()
    assert "hunter2" not in str(refused.value)
    await broker.close()


async def test_the_password_is_sent_and_a_wrong_one_is_an_error(redis_server: RedisServer) -> None:
    """SEC-23: authentication is supported, and the user of the documentation may do enough."""
    redis_server.say(*ACL.replace("PASSWORD", "s3cret").split())
    try:
        host = f"127.0.0.1:{redis_server.port}/0"
        right = RedisBroker(f"redis://holdfast:s3cret@{host}", "kind", Clock(), Ids())
        await right.open()
        await right.send([Hint("q")])
        assert await received(right) == [Hint("q")]
        await right.close()
        wrong = RedisBroker(f"redis://holdfast:wr0ng@{host}", "kind", Clock(), Ids())
        with pytest.raises(BrokerError) as refused:
            await wrong.open()
        assert "wr0ng" not in str(refused.value)
        await wrong.close()
    finally:
        redis_server.say("ACL", "DELUSER", "holdfast")


async def test_a_rediss_url_uses_tls(redis_server: RedisServer, tmp_path: Path) -> None:
    """SEC-23: encrypted, and with a certificate that somebody vouches for."""
    key, certificate = certify(tmp_path)
    async with Proxy.to(redis_server.url, certificate=(key, certificate)) as proxy:
        url = proxy.url.replace("redis://127.0.0.1", "rediss://localhost")
        strange = RedisBroker(url, None, Clock(), Ids())
        with pytest.raises(BrokerError, match="certificate"):
            await strange.open()
        known = RedisBroker(f"{url}?ssl_ca_certs={certificate}", None, Clock(), Ids())
        await known.send([Hint("q")])
        for broker in (strange, known):
            await broker.close()


async def test_unused_groups_and_consumers_are_removed(
    brokers: Brokers, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await brokers("gone")
    leaver, reader = await brokers(), await brokers()
    await leaver.receive(0.01, 1)
    await asyncio.sleep(1.5)
    monkeypatch.setattr(redis_cleanup, "GONE_SECONDS", 1.2)
    redis_server.say("DEL", redis_cleanup.CLEANUP_LOCK)
    reader._take_over_at = 0.0
    for stream in STREAMS.values():  # a word from the one who is still there
        redis_server.say("XREADGROUP", "GROUP", "kind", reader._reader, "STREAMS", stream, ">")
    await reader.receive(0.01, 1)
    for stream in STREAMS.values():
        assert names(redis_server.say("XINFO", "GROUPS", stream)) == ["kind"]
        assert names(redis_server.say("XINFO", "CONSUMERS", stream, "kind")) == [reader._reader]
    assert redis_server.say("TTL", redis_cleanup.CLEANUP_LOCK) > 0, "and nobody else need do it for a minute"
