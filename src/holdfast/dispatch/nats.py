"""The NATS JetStream broker: one stream, a subject per priority level, a consumer per subject and kind of worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.dispatch.broker import BrokerError, ReceivedHint
from holdfast.dispatch.messages import BYTES_MAX, LEVELS, level_of, read, written
from holdfast.dispatch.nats_connection import CALL_SECONDS, NatsConnection, servers_of
from holdfast.dispatch.nats_pull import ACK, NAK, STREAM, TERM, answer, fetch_pending, wait_for_first
from holdfast.model.hint import Hint

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

T = TypeVar("T")

SUBJECTS = {level: f"holdfast.hints.{level}" for level in LEVELS}
MESSAGES_MAX, AGE_MAX_SECONDS = 10_000, 3600.0  # of the stream; the oldest messages are dropped first
ACK_SECONDS = 30.0  # then an unacknowledged hint is delivered again
DELIVERIES_MAX = 20
UNUSED_SECONDS = 300.0  # then the consumer of a kind of worker is deleted
WAITING_MAX = 10_000  # workers of one kind, at once


class NatsBroker:
    """`kind`: the kind of worker that receives; None: send only."""

    def __init__(self, url: str, kind: str | None = None) -> None:
        self.garbage = 0
        self._servers = servers_of(url)
        self._consumers = [] if kind is None else [f"{kind}-{level}" for level in LEVELS]
        self._connection: NatsConnection | None = None
        self._connecting = asyncio.Lock()
        self._last: list[Msg] | None = None  # the last batch; None before the first

    async def open(self) -> None:
        await self._call(self._create)

    async def send(self, hints: list[Hint]) -> None:
        await self._call(lambda connection: _publish(connection.client, hints))

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        """Pending messages, high before low; else wait for the first one."""
        messages: list[Msg] = []
        if self._has_backlog() or seconds <= 0:
            messages = await self._call(lambda connection: fetch_pending(connection, self._consumers, most))
        if not messages and seconds > 0:
            wait = seconds + CALL_SECONDS
            messages = await self._call(lambda connection: wait_for_first(connection, self._consumers, seconds), wait)
        self._last = messages
        return await self._read(messages)

    def _has_backlog(self) -> bool:
        """Whether more messages were pending after the last batch."""
        return self._last is None or any(message.metadata.num_pending for message in self._last)

    async def ack(self, received: list[ReceivedHint]) -> None:
        await self._answer([delivery.receipt for delivery in received], ACK)

    async def nack(self, received: list[ReceivedHint]) -> None:
        await self._answer([delivery.receipt for delivery in received], NAK)

    async def close(self) -> None:
        if self._connection:
            await self._connection.close()

    async def _call(self, work: Callable[[NatsConnection], Coroutine[Any, Any, T]], seconds: float = CALL_SECONDS) -> T:
        async with self._connecting:
            if not (self._connection and self._connection.is_open):
                self._connection = await NatsConnection.to(self._servers)
        return await self._connection.within(work(self._connection), seconds)

    async def _create(self, connection: NatsConnection) -> None:
        self._last = None
        streams = connection.client.jetstream(timeout=CALL_SECONDS)
        await _create_stream(streams)
        for name, subject in zip(self._consumers, SUBJECTS.values(), strict=False):
            await _create_consumer(streams, name, subject)

    async def _read(self, messages: list[Msg]) -> list[ReceivedHint]:
        came = [(read(message.data), message.reply) for message in messages]
        if garbage := [receipt for hint, receipt in came if hint is None]:
            self.garbage += len(garbage)
            await self._answer(garbage, TERM)
        return [ReceivedHint(hint, receipt) for hint, receipt in came if hint]

    async def _answer(self, receipts: list[str], what: bytes) -> None:
        await self._call(lambda connection: answer(connection.client, receipts, what))


async def _publish(client: Client, hints: list[Hint]) -> None:
    """Messages are ordered, so the acknowledgement of the last one covers all."""
    for hint in hints[:-1]:
        await client.publish(SUBJECTS[level_of(hint)], written(hint))
    for hint in hints[-1:]:
        reply = await client.request(SUBJECTS[level_of(hint)], written(hint), timeout=CALL_SECONDS)
        if b'"error"' in reply.data:
            raise BrokerError(f"NATS rejected a hint: {reply.data.decode(errors='replace')[:200]}")


async def _create_stream(streams: JetStreamContext) -> None:
    """An existing stream is not changed: the operator may have configured replicas."""
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


async def _create_consumer(streams: JetStreamContext, name: str, subject: str) -> None:
    """It gets new messages only: a listener polls the database after `open`."""
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
