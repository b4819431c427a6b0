"""Hints through NATS JetStream: one stream with a subject for each level, and a consumer of each for a kind of worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.dispatch.broker import Delivery
from holdfast.dispatch.messages import BYTES_MAX, read, written
from holdfast.dispatch.nats_connection import CALL_SECONDS, Connection
from holdfast.dispatch.nats_pull import STREAM, linger, sweep
from holdfast.model.hint import Hint

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

T = TypeVar("T")

LEVELS = ("high", "normal", "low")
SUBJECTS = tuple(f"holdfast.hints.{level}" for level in LEVELS)
MESSAGES_MAX, AGE_MAX_SECONDS = 10_000, 3600.0  # in the stream; the oldest go first
ACK_SECONDS = 30.0  # whoever took a hint and says nothing for so long is dead
DELIVERIES_MAX = 5
UNUSED_SECONDS = 300.0  # a kind of worker that asks for nothing for so long is no more
WAITING_MAX = 10_000  # workers of one kind, at once

ACK, NAK, TERM = b"+ACK", b"-NAK", b"+TERM"


class NatsBroker:
    """`kind`: whose hints are received; None sends only."""

    def __init__(self, url: str, kind: str | None = None) -> None:
        self.garbage = 0
        self._servers = url.split(",")
        self._consumers = [] if kind is None else [f"{kind}-{level}" for level in LEVELS]
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def open(self) -> None:
        await self._call(self._make)

    async def send(self, hints: list[Hint]) -> None:
        await self._call(lambda client: _publish(client, hints))

    async def receive(self, seconds: float, most: int) -> list[Delivery]:
        """What is there already, high before low; else the first that comes, and what came with it."""
        messages = await self._call(lambda client: sweep(client, self._consumers, most))
        if not messages:
            messages = await self._call(
                lambda client: linger(client, self._consumers, seconds), seconds + CALL_SECONDS
            )
        found = [Delivery(hint, message.reply) for message in messages if (hint := read(message.data))]
        known = {delivery.receipt for delivery in found}
        await self._drop([message.reply for message in messages if message.reply not in known])
        return found

    async def settle(self, seen: list[Delivery]) -> None:
        await self._answer((delivery.receipt for delivery in seen), ACK)

    async def give_back(self, unseen: list[Delivery]) -> None:
        await self._answer((delivery.receipt for delivery in unseen), NAK)

    async def close(self) -> None:
        if self._connection:
            await self._connection.close()

    async def _call(self, work: Callable[[Client], Coroutine[Any, Any, T]], seconds: float = CALL_SECONDS) -> T:
        async with self._connecting:
            if not (self._connection and self._connection.lasts):
                self._connection = await Connection.to(self._servers)
        return await self._connection.within(work(self._connection.client), seconds)

    async def _make(self, client: Client) -> None:
        streams = client.jetstream(timeout=CALL_SECONDS)
        await _make_stream(streams)
        for name, subject in zip(self._consumers, SUBJECTS, strict=False):
            await _make_consumer(streams, name, subject)

    async def _drop(self, garbage: list[str]) -> None:
        if garbage:
            self.garbage += len(garbage)
            await self._answer(garbage, TERM)

    async def _answer(self, receipts: Iterable[str], answer: bytes) -> None:
        """Nobody waits for its arrival: a message that comes again is as good as new."""

        async def publish(client: Client) -> None:
            for receipt in receipts:
                await client.publish(receipt, answer)

        await self._call(publish)


async def _publish(client: Client, hints: list[Hint]) -> None:
    """They travel in order, so the answer to the last one speaks for all."""
    for hint in hints[:-1]:
        await client.publish(_subject(hint), written(hint))
    for hint in hints[-1:]:
        await client.jetstream().publish(_subject(hint), written(hint), timeout=CALL_SECONDS)


def _subject(hint: Hint) -> str:
    return SUBJECTS[1 - (hint.priority > 0) + (hint.priority < 0)]


async def _make_stream(streams: JetStreamContext) -> None:
    """One that is there already stays as it is: somebody may have given it three replicas."""
    from nats.js.errors import NotFoundError

    try:
        await streams.stream_info(STREAM)
    except NotFoundError:
        limits = {"max_msgs": MESSAGES_MAX, "max_age": AGE_MAX_SECONDS, "max_msg_size": BYTES_MAX}
        await streams.add_stream(name=STREAM, subjects=list(SUBJECTS), **limits)


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
