"""Asking JetStream for messages: what is there, or the first that comes. No request outlives its call.

The library's `fetch` leaves requests behind at the server when its time is up, or when more than one consumer is asked;
a message that answers one of them would lie with a worker that does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.dispatch.broker import BrokerError, Missing

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

STREAM = "HOLDFAST_HINTS"
SECOND = 1_000_000_000  # in the server's nanoseconds
NOTHING = ("404", "408")  # no messages; time is up
GONE = "Consumer Deleted"


async def sweep(client: Client, consumers: Sequence[str], most: int) -> list[Msg]:
    """What waits there now, from one consumer after the other."""
    found: list[Msg] = []
    async with Inbox(client) as inbox:
        for consumer in consumers:
            wanted = most - len(found)
            await inbox.ask(consumer, batch=wanted, no_wait=True)
            while wanted and (message := await inbox.next()):
                found.append(message)
                wanted -= 1
            if len(found) == most:
                break
    return found


async def linger(client: Client, consumers: Sequence[str], seconds: float) -> list[Msg]:
    """The first that comes from any of them, and what came with it."""
    async with Inbox(client) as inbox:
        for consumer in consumers:
            await inbox.ask(consumer, batch=1, expires=int(seconds * SECOND))
        for _ in consumers:
            if message := await inbox.next():
                return [message, *await inbox.rest()]
    return []


class Inbox:
    """Where the answers come. When it is gone, the server forgets the requests that named it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = client.new_inbox()
        self._came: asyncio.Queue[Msg] = asyncio.Queue()

    async def __aenter__(self) -> Inbox:
        self._subscription = await self._client.subscribe(self._name, cb=self._came.put)
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # it was left before, or the connection is gone, and all of it with it
            await self._subscription.unsubscribe()

    async def ask(self, consumer: str, **request: Any) -> None:
        where = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}"
        await self._client.publish(where, json.dumps(request).encode(), reply=self._name)

    async def next(self) -> Msg | None:
        """None when a request is over."""
        return _hint_or_end(await self._came.get())

    async def rest(self) -> list[Msg]:
        """Takes back all requests. What the server had sent by then still arrives."""
        await self._subscription.drain()
        came = [self._came.get_nowait() for _ in range(self._came.qsize())]
        return [message for message in came if not message.headers]


def _hint_or_end(message: Msg) -> Msg | None:
    status = (message.headers or {}).get("Status")
    if not status:
        return message
    if status in NOTHING:
        return None
    description = (message.headers or {}).get("Description", "")
    if status == "503" or GONE in description:
        raise Missing("the consumer of hints is not there")
    raise BrokerError(f"NATS: {description or status}")
