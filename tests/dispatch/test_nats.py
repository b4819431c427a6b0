"""The NATS broker against a real server: what it carries, what it throws away, what happens when the server dies."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats
import pytest

from holdfast.dispatch import nats as module
from holdfast.dispatch.broker import BrokerError, ReceivedHint, SubscriptionLost
from holdfast.dispatch.nats import NatsBroker
from holdfast.model.hint import Hint
from tests.docs.pages import blocks
from tests.servers.certificate import certify
from tests.servers.nats import NatsServer

STREAM = "HOLDFAST_HINTS"
MAIL = Hint("mail", "SEND_EMAIL", "0198a000-0000-7000-8000-000000000001")

Opener = Callable[..., Awaitable[NatsBroker]]


@pytest.fixture
async def opened(nats_server: NatsServer) -> AsyncIterator[Opener]:
    """Makes brokers, and closes them in the end."""
    async with AsyncExitStack() as stack:

        async def make(kind: str | None = "one", url: str = nats_server.url) -> NatsBroker:
            broker = NatsBroker(url, kind)
            stack.push_async_callback(broker.close)
            await broker.open()
            return broker

        yield make


@pytest.fixture
async def streams(nats_server: NatsServer) -> AsyncIterator[Any]:
    """An operator's view of the server."""
    client = await nats.connect(nats_server.url)
    yield client.jetstream()
    await client.close()


def hints(deliveries: list[ReceivedHint]) -> list[Hint]:
    return [delivery.hint for delivery in deliveries]


async def all_of(broker: NatsBroker) -> list[Hint]:
    """What comes within a moment, settled."""
    found: list[Hint] = []
    while came := await broker.receive(0.1, 64):
        found += hints(came)
        await broker.ack(came)
    return found


async def reopen(broker: NatsBroker) -> None:
    """As the breaker does: the first try may find that the old connection is broken."""
    with contextlib.suppress(BrokerError):
        await broker.open()
    await broker.open()


# -- carrying ----------------------------------------------------------------------------------------------------------


async def test_hints_are_received_by_priority_up_to_the_requested_number(opened: Opener, streams: Any) -> None:
    broker = await opened()
    low, normal, high = (MAIL._replace(priority=priority) for priority in (-5, 0, 7))
    await broker.send([low, low, normal, normal, high])
    for _ in range(500):  # the consumers hear of it one after the other
        if sum(consumer.num_pending for consumer in await streams.consumers_info(STREAM)) == 5:
            break
        await asyncio.sleep(0.01)
    first = await broker.receive(5, 2)
    assert hints(first) == [high, normal]
    assert hints(await broker.receive(5, 10)) == [normal, low, low]


async def test_a_waiting_receiver_gets_hints_of_each_priority(opened: Opener) -> None:
    broker = await opened()
    for priority in (-1, 0, 1):
        hint = MAIL._replace(priority=priority)
        waiting = asyncio.create_task(broker.receive(30, 10))
        await asyncio.sleep(0.02)
        await broker.send([hint])
        came = await waiting
        assert hints(came) == [hint]
        await broker.ack(came)


async def test_a_hint_goes_to_one_worker_of_each_kind(opened: Opener) -> None:
    first, second, other, sender = await opened(), await opened(), await opened("other"), await opened(None)
    sent = [MAIL._replace(queue=f"queue-{number}") for number in range(20)]
    await sender.send(sent)
    taken = hints(await first.receive(5, 7))
    assert sorted(taken + await all_of(second)) == sorted(sent)
    assert sorted(await all_of(other)) == sorted(sent)


async def test_receive_returns_nothing_after_its_timeout(opened: Opener) -> None:
    assert await (await opened()).receive(0.05, 10) == []


async def test_many_hints_are_published_in_one_round_trip(opened: Opener) -> None:
    broker = await opened()
    await broker.send([MAIL] * 500)
    assert await all_of(broker) == [MAIL] * 500


async def test_an_unacknowledged_hint_is_delivered_again(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """R000-5, S13: acknowledged after it was looked at, not before."""
    monkeypatch.setattr(module, "ACK_SECONDS", 0.3)
    dying, other = await opened(), await opened()
    await other.send([MAIL])
    assert await dying.receive(5, 10)
    await dying.close()
    assert hints(await other.receive(20, 10)) == [MAIL]


async def test_a_nacked_hint_is_delivered_to_another_worker_at_once(opened: Opener) -> None:
    first, second = await opened(), await opened()
    await first.send([MAIL])
    await first.nack(await first.receive(5, 10))
    assert hints(await second.receive(5, 10)) == [MAIL]


async def test_a_canceled_receive_gets_no_hints(opened: Opener) -> None:
    """A request that outlived its call would swallow a hint: the worker that made it may be busy for hours (L6)."""
    busy, idle = await opened(), await opened()
    for priority in (1, 0, -1):
        waiting = asyncio.create_task(busy.receive(30, 10))
        await asyncio.sleep(0.02)
        await busy.send([MAIL._replace(priority=priority)])
        await busy.ack(await waiting)
    gave_up = asyncio.create_task(busy.receive(30, 10))
    await asyncio.sleep(0.02)
    gave_up.cancel()
    await asyncio.wait([gave_up])
    for priority in (1, 0, -1):
        await idle.send([MAIL._replace(priority=priority)])
        came = await idle.receive(5, 10)
        assert hints(came) == [MAIL._replace(priority=priority)]
        await idle.ack(came)


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_a_malformed_message_is_dropped_and_counted(opened: Opener, streams: Any) -> None:
    """SEC-23"""
    broker = await opened()
    for garbage in (b"", b"\x00\xff", b"null", b"[" * 1000, b'["q",null,"no id",0]', b'["q",null,null,1e400]'):
        await streams.publish("holdfast.hints.normal", garbage)
    for status in ("404", "408", "409", "503", "x" * 500):
        await streams.publish(
            "holdfast.hints.normal", b"", headers={"Status": status, "Description": "Consumer Deleted"}
        )
    await broker.send([MAIL])
    assert await all_of(broker) == [MAIL]
    assert broker.garbage == 11
    with pytest.raises(nats.js.errors.APIError):  # the stream itself takes nothing that is too long
        await streams.publish("holdfast.hints.normal", b"x" * 5000)


async def test_the_stream_keeps_the_newest_hints(opened: Opener, streams: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MESSAGES_MAX", 50)
    broker = await opened()
    await broker.send([MAIL._replace(queue=f"queue-{number}") for number in range(200)])
    found = await all_of(broker)
    assert [hint.queue for hint in found] == [f"queue-{number}" for number in range(150, 200)]
    assert (await streams.stream_info(STREAM)).config.max_age == 3600


async def test_a_hint_is_not_delivered_after_max_deliver(opened: Opener) -> None:
    """F31: max-deliver reached; then polling finds the job."""
    broker = await opened()
    await broker.send([MAIL])
    for _ in range(module.DELIVERIES_MAX):
        came = await broker.receive(5, 1)
        assert hints(came) == [MAIL]
        await broker.nack(came)
    assert await broker.receive(0.3, 1) == []


async def test_unused_consumers_are_removed(opened: Opener, streams: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNUSED_SECONDS", 0.2)
    await (await opened()).close()
    for _ in range(200):
        if not await streams.consumers_info(STREAM):
            break
        await asyncio.sleep(0.05)
    assert not await streams.consumers_info(STREAM)


async def test_an_existing_stream_keeps_its_configuration(opened: Opener, streams: Any) -> None:
    await streams.add_stream(name=STREAM, subjects=["holdfast.hints.*"], max_msgs=77)
    broker = await opened()
    await broker.send([MAIL])
    assert await all_of(broker) == [MAIL]
    assert (await streams.stream_info(STREAM)).config.max_msgs == 77


# -- trouble -----------------------------------------------------------------------------------------------------------


async def test_a_deleted_stream_is_reported_at_once_and_created_again(opened: Opener, streams: Any) -> None:
    """F31"""
    broker = await opened()
    waiting = asyncio.create_task(broker.receive(60, 10))
    await asyncio.sleep(0.05)
    await streams.delete_stream(STREAM)
    for call in (waiting, broker.receive(5, 1), broker.send([MAIL])):
        with pytest.raises(SubscriptionLost):
            await call
    await broker.open()
    await broker.send([MAIL])
    assert await all_of(broker) == [MAIL]


async def test_a_deleted_consumer_is_reported_at_once_and_created_again(opened: Opener, streams: Any) -> None:
    broker = await opened()
    waiting = asyncio.create_task(broker.receive(60, 10))
    await asyncio.sleep(0.05)
    await streams.delete_consumer(STREAM, "one-normal")
    with pytest.raises(SubscriptionLost):
        await waiting
    await broker.open()
    await broker.send([MAIL])
    assert await all_of(broker) == [MAIL]


async def test_a_waiting_receiver_fails_when_the_server_is_killed_and_hints_survive(
    opened: Opener, nats_server: NatsServer
) -> None:
    broker = await opened()
    await broker.ack(await broker.receive(0.01, 1))
    await broker.send([MAIL] * 3)
    waiting = asyncio.create_task((await opened("other")).receive(60, 10))
    nats_server.stop(kill=True)
    await asyncio.wait([waiting], timeout=10)
    assert waiting.done()
    nats_server.start()
    await reopen(broker)
    assert await all_of(broker) == [MAIL] * 3


async def test_the_stream_is_created_again_on_an_empty_server(opened: Opener, nats_server: NatsServer) -> None:
    broker = await opened()
    await broker.send([MAIL])
    nats_server.restart(kill=True, empty=True)
    with pytest.raises(BrokerError):
        await broker.receive(0.1, 1)
    await reopen(broker)
    await broker.send([MAIL])
    assert await all_of(broker) == [MAIL]


async def test_hints_continue_after_the_server_lost_its_last_writes(opened: Opener, nats_server: NatsServer) -> None:
    """F31, K31: hints that were acknowledged are gone, and with them only time."""
    broker = await opened()
    await broker.send([MAIL] * 3)
    nats_server.stop()
    older = nats_server.remember()
    nats_server.start()
    await reopen(broker)
    await broker.send([MAIL] * 5)
    assert len(await all_of(broker)) == 8
    nats_server.stop(kill=True)
    nats_server.start_with(older)
    await reopen(broker)
    await broker.send([MAIL])
    assert 1 <= len(await all_of(broker)) <= 4  # those three may come again: they are only hints


async def test_every_call_to_a_dead_server_ends_with_an_error(
    opened: Opener, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L6"""
    monkeypatch.setattr(module, "ACK_SECONDS", 0.5)
    broker = await opened()
    await broker.send([MAIL])
    came = await broker.receive(5, 1)
    nats_server.stop(kill=True)
    for call in (
        broker.open(),
        broker.send([MAIL]),
        broker.receive(60, 1),
        broker.ack(came),
        broker.nack(came),
    ):
        with pytest.raises(BrokerError):
            await asyncio.wait_for(call, 60)
    nats_server.start()
    await reopen(broker)
    assert hints(await broker.receive(60, 1)) == [MAIL]


async def test_every_call_to_a_frozen_server_ends_with_an_error(opened: Opener, nats_server: NatsServer) -> None:
    """F11: and it is not asked again on the same connection."""
    brokers = [await opened() for _ in range(3)]
    with nats_server.frozen():
        await asyncio.sleep(0.1)  # all of its threads
        calls = [brokers[0].open(), brokers[1].send([MAIL]), brokers[2].receive(60, 1)]
        ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
    assert [type(end) for end in ends] == [BrokerError] * 3
    for broker in brokers:
        await reopen(broker)


@pytest.mark.parametrize("url", ["", "localhost:4222", "nats://", "nats://host:port", "redis://host:1", "nats://a:1,"])
def test_an_invalid_url_is_an_error_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        NatsBroker(url.replace("//", "//holdfast:secret@"))
    assert "secret" not in str(caught.value)


# -- who may ----------------------------------------------------------------------------------------------------------


async def test_a_wrong_password_is_an_error_that_does_not_show_it() -> None:
    with NatsServer.started("--user", "holdfast", "--pass", "right") as server:
        for password in ("right", "wrong"):
            broker = NatsBroker(server.url.replace("//", f"//holdfast:{password}@"), "one")
            if password == "right":
                await broker.open()
            else:
                with pytest.raises(BrokerError, match="Authorization") as caught:
                    await broker.open()
                assert password not in str(caught.value)
            await broker.close()


async def test_the_documented_permissions_are_sufficient(tmp_path: Path) -> None:
    """SEC-23"""
    (granted,) = [block.text for block in blocks("docs/operate/brokers.md", "text") if block.heading == "NATS"]
    (tmp_path / "nats.conf").write_text(granted)
    with NatsServer.started("--config", str(tmp_path / "nats.conf")) as server:
        broker = NatsBroker(server.url.replace("//", "//holdfast:PASSWORD@"), "one")
        await broker.open()
        await broker.send([MAIL] * 3)
        first = await broker.receive(5, 1)
        await broker.nack(first)
        assert await all_of(broker) == [MAIL] * 3
        await broker.close()


async def test_a_tls_url_uses_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-23: encrypted, and with a certificate that somebody vouches for."""
    key, certificate = certify(tmp_path)
    with NatsServer.started("--tls", "--tlscert", certificate, "--tlskey", key) as server:
        url = server.url.replace("nats://127.0.0.1", "tls://localhost")
        assert "certificate" in await complaint(NatsBroker(url))
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        broker = NatsBroker(url, "one")
        await broker.open()
        await broker.send([MAIL])
        assert await all_of(broker) == [MAIL]
        await broker.close()


async def complaint(broker: NatsBroker) -> str:
    """Why it cannot be opened; on a busy machine a call may time out first."""
    while True:
        with pytest.raises(BrokerError) as caught:
            await broker.open()
        if "timed out" not in str(caught.value):
            return str(caught.value)


async def test_no_password_is_sent_without_tls_when_the_url_requires_it() -> None:
    """SEC-23: whoever sits in between cannot talk us out of it."""
    heard = b""

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        greeting = {"server_id": "x", "version": "2.15.1", "max_payload": 1024, "headers": True, "tls_required": False}
        writer.write(b"INFO " + json.dumps(greeting).encode() + b"\r\n")
        heard = await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(impostor, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        broker = NatsBroker(f"tls://holdfast:secret@127.0.0.1:{port}")
        with pytest.raises(BrokerError, match="TLS"):
            await broker.open()
    assert heard == b""
