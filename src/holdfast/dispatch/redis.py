"""The Redis Streams broker: one stream per priority level, a consumer group per kind of worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from holdfast.clock import Clock
from holdfast.dispatch.broker import BrokerError, ReceivedHint
from holdfast.dispatch.messages import LEVELS, level_of, read, written
from holdfast.dispatch.redis_cleanup import remove_unused
from holdfast.dispatch.redis_connection import CALL_SECONDS, Command, RedisConnection
from holdfast.ids import Ids
from holdfast.model.hint import Hint

STREAMS = {level: f"holdfast:hints:{level}" for level in LEVELS}
FIELD = b"hint"
LENGTH_MAX = 10_000  # of a stream, approximately; the oldest entries are trimmed
TAKE_OVER_SECONDS = 10.0  # how often a consumer looks for entries of crashed ones
DEAD_SECONDS = 30.0  # then an unacknowledged hint is delivered again
TAKEN_OVER_MAX = 100

Receipt = tuple[bytes, bytes]  # stream, number


class RedisBroker:
    """`kind`: the kind of worker that receives; None: send only."""

    def __init__(self, url: str, kind: str | None, clock: Clock, ids: Ids) -> None:
        self.garbage = 0
        self._clock, self._ids = clock, ids
        self._connection = RedisConnection(url)
        self._group = kind
        self._reader = f"{ids.bits(64):016x}"
        self._reading = ("XREADGROUP", "GROUP", kind, self._reader)
        self._in_hand: set[Receipt] = set()
        self._returning: asyncio.Task[None] | None = None
        self._take_over_at = 0.0
        self._cursors = dict.fromkeys(STREAMS.values(), b"0-0")  # XAUTOCLAIM cursors

    async def open(self) -> None:
        """A new group gets new entries only: a listener polls the database after `open`."""
        self._in_hand.clear()
        made: list[Command] = [("PING",)]
        for stream in STREAMS.values() if self._group is not None else ():
            made.append(("XGROUP", "CREATE", stream, self._group, "$", "MKSTREAM"))
            made.append(("XGROUP", "CREATECONSUMER", stream, self._group, self._reader))
        await self._connection.call(made, allow="BUSYGROUP")

    async def send(self, hints: list[Hint]) -> None:
        await self._connection.call([_addition(hint) for hint in hints], retry=True)

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        try:
            return await self._take_over_at_times() or await self._take(seconds, most)
        except asyncio.CancelledError:
            self._returning = self._returning or asyncio.create_task(self._return_unhandled())
            raise

    async def _take(self, seconds: float, most: int) -> list[ReceivedHint]:
        block = ("BLOCK", max(1, round(seconds * 1000))) if seconds > 0 else ()  # 0 blocks forever
        reading = (*self._reading, "COUNT", most, *block)
        (found,) = await self._connection.call(
            [(*reading, "STREAMS", *STREAMS.values(), *(">" for _ in STREAMS))], seconds=seconds + CALL_SECONDS
        )
        return await self._read(_entries(found))

    async def ack(self, received: list[ReceivedHint]) -> None:
        await self._acknowledge(delivery.receipt for delivery in received)

    async def nack(self, received: list[ReceivedHint]) -> None:
        """Redis has no nack: the hints are sent again, and the old entries acknowledged."""
        await self.send([delivery.hint for delivery in received])
        await self.ack(received)

    async def close(self) -> None:
        if self._returning is not None:
            await asyncio.wait([self._returning])
        await self._connection.close()

    async def _return_unhandled(self) -> None:
        """After a cancelled receive: entries that were delivered at that moment are returned for other workers."""
        try:
            with contextlib.suppress(BrokerError):
                (found,) = await self._connection.call(
                    [(*self._reading, "STREAMS", *STREAMS.values(), *("0" for _ in STREAMS))]
                )
                unhandled = [each for each in _entries(found) if (each[0], each[1][0]) not in self._in_hand]
                if unhandled:
                    await self.nack(await self._read(unhandled))
        finally:
            self._returning = None

    async def _take_over_at_times(self) -> list[ReceivedHint]:
        if (now := self._clock.monotonic()) < self._take_over_at:
            return []
        self._take_over_at = now + TAKE_OVER_SECONDS * (0.75 + 0.5 * self._ids.jitter())
        if not (left := await self._take_over()):
            await remove_unused(self._connection, STREAMS.values())
        return left

    async def _take_over(self) -> list[ReceivedHint]:
        """Claim the unacknowledged hints of crashed workers of this kind. Trimmed entries are gone."""
        idle, most = round(DEAD_SECONDS * 1000), TAKEN_OVER_MAX
        answers = await self._connection.call(
            [
                ("XAUTOCLAIM", stream, self._group, self._reader, idle, place, "COUNT", most)
                for stream, place in self._cursors.items()
            ]
        )
        left = [(stream.encode(), answer[1]) for stream, answer in zip(self._cursors, answers, strict=True)]
        self._cursors = {stream: answer[0] for stream, answer in zip(self._cursors, answers, strict=True)}
        return await self._read(_entries(left))

    async def _read(self, entries: Iterable[tuple[bytes, Any]]) -> list[ReceivedHint]:
        found, garbage = [], []
        for stream, (number, fields) in entries:
            hint = read(fields[1]) if fields[0] == FIELD else None
            if hint is None:
                garbage.append((stream, number))
            else:
                found.append(ReceivedHint(hint, (stream, number)))
        self._in_hand.update(delivery.receipt for delivery in found)
        self.garbage += len(garbage)
        await self._acknowledge(garbage)
        return found

    async def _acknowledge(self, receipts: Iterable[Receipt]) -> None:
        by_stream: dict[bytes, list[bytes]] = {}
        for stream, number in receipts:
            self._in_hand.discard((stream, number))
            by_stream.setdefault(stream, []).append(number)
        if by_stream:
            await self._connection.call(
                [("XACK", stream, self._group, *numbers) for stream, numbers in by_stream.items()]
            )


def _entries(found: Any) -> list[tuple[bytes, Any]]:
    """(stream, (number, fields)) of each entry, without trimmed ones."""
    return [(stream, entry) for stream, entries in found or () for entry in entries if entry and entry[1]]


def _addition(hint: Hint) -> Command:
    return ("XADD", STREAMS[level_of(hint)], "MAXLEN", "~", LENGTH_MAX, "*", FIELD, written(hint))
