"""Pull requests to JetStream: pending messages, or the first new one. No request outlives its call.

The library's `fetch` leaves requests on the server after a timeout, or with more than one consumer; a message for such
a request would be stuck with a worker that does not wait for it.
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
ACK, NAK, TERM = b"+ACK", b"-NAK", b"+TERM"  # acknowledge; deliver again; drop
SECOND = 1_000_000_000  # in nanoseconds
NOTHING = ("404", "408")  # no messages; request timeout
NO_RESPONDERS = "503"
GONE = "Consumer Deleted"
LEAVE_SECONDS = 0.001  # the received messages are handled first


async def fetch_pending(connection: NatsConnection, consumers: Sequence[str], most: int) -> list[Msg]:
    """Pending messages, from one consumer after the other."""
    found: list[Msg] = []
    async with PullInbox(connection) as inbox:
        for consumer in consumers:
            wanted = most - len(found)
            await inbox.request(consumer, batch=wanted, no_wait=True)
            while wanted and (message := await inbox.next()):
                found.append(message)
                wanted -= 1
            if len(found) == most:
                break
    return found


async def wait_for_first(connection: NatsConnection, consumers: Sequence[str], seconds: float) -> list[Msg]:
    """Wait for the first message, at most one per consumer."""
    async with PullInbox(connection) as inbox:
        for consumer in consumers:
            await inbox.request(consumer, batch=1, expires=int(seconds * SECOND))
        for _ in consumers:
            if message := await inbox.next():
                found = [message, *inbox.available()]
                return sorted(found, key=lambda each: consumers.index(each.metadata.consumer)) if found[1:] else found
    return []


class PullInbox:
    """Receives the replies. Leaving the context cancels the open requests.

    The server may have answered them already; such a message is returned with NAK, in the background.
    """

    def __init__(self, connection: NatsConnection) -> None:
        self._connection, self._client = connection, connection.client
        self._name = self._client.new_inbox()
        self._queue: asyncio.Queue[Msg] = asyncio.Queue()
        self._taken: list[Msg] = []

    async def __aenter__(self) -> PullInbox:
        self._subscription = await self._client.subscribe(self._name, cb=self._queue.put)
        return self

    async def __aexit__(self, failure: object, *_: object) -> None:
        if not failure:
            self._taken.clear()
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, lambda: self._connection.in_background(self._leave()))

    async def request(self, consumer: str, **request: Any) -> None:
        where = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}"
        await self._client.publish(where, json.dumps(request).encode(), reply=self._name)

    async def next(self) -> Msg | None:
        """None when a request has ended."""
        if message := _message_or_end(await self._queue.get()):
            self._taken.append(message)
        return message

    def available(self) -> list[Msg]:
        """Further messages that have arrived."""
        came = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        return [message for message in came if message.reply]

    async def _leave(self) -> None:
        await self._subscription.drain()  # type: ignore[no-untyped-call]
        await answer(self._client, [message.reply for message in self._taken + self.available()], NAK)


async def answer(client: Client, receipts: Iterable[str], what: bytes) -> None:
    """Without waiting for delivery: a message that comes again does no harm."""
    for receipt in receipts:
        await client.publish(receipt, what)


def _message_or_end(message: Msg) -> Msg | None:
    """Stream messages have a reply subject; status messages of the server do not. Headers are not trusted."""
    if message.reply:
        return message
    headers = message.headers or {}
    status, description = headers.get("Status"), headers.get("Description", "")
    if status in NOTHING:
        return None
    if status == NO_RESPONDERS or GONE in description:
        raise SubscriptionLost("the consumer of hints does not exist")
    raise BrokerError(f"NATS: {description or status}")
