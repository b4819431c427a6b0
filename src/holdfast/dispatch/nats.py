"""Hints through NATS JetStream: one stream, a subject for each level, a consumer of each for every kind of worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.dispatch.broker import BrokerError, ReceivedHint
from holdfast.dispatch.messages import BYTES_MAX, LEVELS, level_of, read, written
from holdfast.dispatch.nats_connection import CALL_SECONDS, NatsConnection, servers_of
from holdfast.dispatch.nats_pull import ACK, NAK, STREAM, TERM, answer, linger, sweep
from holdfast.model.hint import Hint

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

T = TypeVar("T")

SUBJECTS = {level: f"holdfast.hints.{level}" for level in LEVELS}
MESSAGES_MAX, AGE_MAX_SECONDS = 10_000, 3600.0  # in the stream; the oldest go first
ACK_SECONDS = 30.0  # whoever took a hint and says nothing for so long is dead
DELIVERIES_MAX = 20
UNUSED_SECONDS = 300.0  # a kind of worker that asks for nothing for so long is no more
WAITING_MAX = 10_000  # workers of one kind, at once


class NatsBroker:
    """`kind`: whose hints are received; None sends only."""

    def __init__(self, url: str, kind: str | None = None) -> None:
        self.garbage = 0
        self._servers = servers_of(url)
        self._consumers = [] if kind is None else [f"{kind}-{level}" for level in LEVELS]
        self._connection: NatsConnection | None = None
        self._connecting = asyncio.Lock()
        self._last: list[Msg] | None = None  # what came last, if we have ever asked

    async def open(self) -> None:
        await self._call(self._make)

    async def send(self, hints: list[Hint]) -> None:
        await self._call(lambda connection: _publish(connection.client, hints))

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        """What is there already, high before low; else the first that comes."""
        messages: list[Msg] = []
        if self._behind() or seconds <= 0:
            messages = await self._call(lambda connection: sweep(connection, self._consumers, most))
        if not messages and seconds > 0:
            wait = seconds + CALL_SECONDS
            messages = await self._call(lambda connection: linger(connection, self._consumers, seconds), wait)
        self._last = messages
        return await self._read(messages)

    def _behind(self) -> bool:
        """Whether more waits there than came last time, or may do so. Asked late: what came is seen to first."""
        return self._last is None or any(message.metadata.num_pending for message in self._last)

    async def settle(self, seen: list[ReceivedHint]) -> None:
        await self._answer([delivery.receipt for delivery in seen], ACK)

    async def give_back(self, unseen: list[ReceivedHint]) -> None:
        await self._answer([delivery.receipt for delivery in unseen], NAK)

    async def close(self) -> None:
        if self._connection:
            await self._connection.close()

    async def _call(self, work: Callable[[NatsConnection], Coroutine[Any, Any, T]], seconds: float = CALL_SECONDS) -> T:
        async with self._connecting:
            if not (self._connection and self._connection.lasts):
                self._connection = await NatsConnection.to(self._servers)
        return await self._connection.within(work(self._connection), seconds)

    async def _make(self, connection: NatsConnection) -> None:
        self._last = None
        streams = connection.client.jetstream(timeout=CALL_SECONDS)
        await _make_stream(streams)
        for name, subject in zip(self._consumers, SUBJECTS.values(), strict=False):
            await _make_consumer(streams, name, subject)

    async def _read(self, messages: list[Msg]) -> list[ReceivedHint]:
        came = [(read(message.data), message.reply) for message in messages]
        if garbage := [receipt for hint, receipt in came if hint is None]:
            self.garbage += len(garbage)
            await self._answer(garbage, TERM)
        return [ReceivedHint(hint, receipt) for hint, receipt in came if hint]

    async def _answer(self, receipts: list[str], what: bytes) -> None:
        await self._call(lambda connection: answer(connection.client, receipts, what))


async def _publish(client: Client, hints: list[Hint]) -> None:
    """They travel in order, so the answer to the last one speaks for all."""
    for hint in hints[:-1]:
        await client.publish(SUBJECTS[level_of(hint)], written(hint))
    for hint in hints[-1:]:
        said = await client.request(SUBJECTS[level_of(hint)], written(hint), timeout=CALL_SECONDS)
        if b'"error"' in said.data:
            raise BrokerError(f"NATS did not take a hint: {said.data.decode(errors='replace')[:200]}")


async def _make_stream(streams: JetStreamContext) -> None:
    """One that is there already stays as it is: somebody may have given it three replicas."""
    from nats.js.errors import NotFoundError

    try:
        await streams.stream_info(STREAM)
    except NotFoundError:
        await streams.add_stream(
            name=STREAM,
            subjects=list(SUBJECTS.values()),
            max_msgs=MESSAGES_MAX,
            max_age=AGE_MAX_SECONDS,
            max_msg_size=BYTES_MAX,
        )


async def _make_consumer(streams: JetStreamContext, name: str, subject: str) -> None:
    """Hints from before its time are not for it: whoever opens it looks into the database first."""
    from nats.js.api import ConsumerConfig, DeliverPolicy

    config = ConsumerConfig(
        name=name,
        durable_name=name,
        filter_subject=subject,
        deliver_policy=DeliverPolicy.NEW,
        ack_wait=ACK_SECONDS,
        max_deliver=DELIVERIES_MAX,
        max_waiting=WAITING_MAX,
        inactive_threshold=UNUSED_SECONDS,
    )
    await streams.add_consumer(STREAM, config)
