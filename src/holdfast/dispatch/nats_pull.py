"""Asking JetStream for messages: what is there, or the first that comes. No request outlives its call.

The library's `fetch` leaves requests behind at the server when its time is up, or when more than one consumer is asked;
a message that answers one of them would lie with a worker that does not wait for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.dispatch.broker import BrokerError, SubscriptionLost
from holdfast.dispatch.nats_connection import NatsConnection

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

STREAM = "HOLDFAST_HINTS"
ACK, NAK, TERM = b"+ACK", b"-NAK", b"+TERM"  # seen; for others; for nobody
SECOND = 1_000_000_000  # in the server's nanoseconds
NOTHING = ("404", "408")  # no messages; time is up
NOBODY = "503"  # answers under this name
GONE = "Consumer Deleted"
LEAVE_SECONDS = 0.001  # later: what came is seen to first


async def sweep(connection: NatsConnection, consumers: Sequence[str], most: int) -> list[Msg]:
    """What waits there now, from one consumer after the other."""
    found: list[Msg] = []
    async with PullInbox(connection) as inbox:
        for consumer in consumers:
            wanted = most - len(found)
            await inbox.ask(consumer, batch=wanted, no_wait=True)
            while wanted and (message := await inbox.next()):
                found.append(message)
                wanted -= 1
            if len(found) == most:
                break
    return found


async def linger(connection: NatsConnection, consumers: Sequence[str], seconds: float) -> list[Msg]:
    """The first that comes, and what came with it: at most one from each."""
    async with PullInbox(connection) as inbox:
        for consumer in consumers:
            await inbox.ask(consumer, batch=1, expires=int(seconds * SECOND))
        for _ in consumers:
            if message := await inbox.next():
                found = [message, *inbox.here()]
                return sorted(found, key=lambda each: consumers.index(each.metadata.consumer)) if found[1:] else found
    return []


class PullInbox:
    """Where the answers come. Whoever leaves it before all have come takes his requests back.

    The server may have answered them by then; such a message goes back to it, and nobody waits for that.
    """

    def __init__(self, connection: NatsConnection) -> None:
        self._connection, self._client = connection, connection.client
        self._name = self._client.new_inbox()
        self._came: asyncio.Queue[Msg] = asyncio.Queue()
        self._taken: list[Msg] = []

    async def __aenter__(self) -> PullInbox:
        self._subscription = await self._client.subscribe(self._name, cb=self._came.put)
        return self

    async def __aexit__(self, failure: object, *_: object) -> None:
        if not failure:
            self._taken.clear()
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, lambda: self._connection.beside(self._leave()))

    async def ask(self, consumer: str, **request: Any) -> None:
        where = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}"
        await self._client.publish(where, json.dumps(request).encode(), reply=self._name)

    async def next(self) -> Msg | None:
        """None when a request is over."""
        if message := _message_or_end(await self._came.get()):
            self._taken.append(message)
        return message

    def here(self) -> list[Msg]:
        """What else has come by now."""
        came = [self._came.get_nowait() for _ in range(self._came.qsize())]
        return [message for message in came if message.reply]

    async def _leave(self) -> None:
        await self._subscription.drain()  # type: ignore[no-untyped-call]
        await answer(self._client, [message.reply for message in self._taken + self.here()], NAK)


async def answer(client: Client, receipts: Iterable[str], what: bytes) -> None:
    """Nobody waits for its arrival: a message that comes again is as good as new."""
    for receipt in receipts:
        await client.publish(receipt, what)


def _message_or_end(message: Msg) -> Msg | None:
    """What stands in the stream can be acknowledged; what the server itself says cannot. Headers anybody can write."""
    if message.reply:
        return message
    headers = message.headers or {}
    status, description = headers.get("Status"), headers.get("Description", "")
    if status in NOTHING:
        return None
    if status == NOBODY or GONE in description:
        raise SubscriptionLost("the consumer of hints is not there")
    raise BrokerError(f"NATS: {description or status}")
