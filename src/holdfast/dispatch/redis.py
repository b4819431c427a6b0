"""Hints through Redis Streams: one stream for each level of priority, a group of readers for each kind of worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from holdfast.clock import Clock
from holdfast.dispatch.broker import BrokerError, ReceivedHint
from holdfast.dispatch.messages import LEVELS, level_of, read, written
from holdfast.dispatch.redis_cleanup import tidy
from holdfast.dispatch.redis_connection import CALL_SECONDS, Command, RedisConnection
from holdfast.ids import Ids
from holdfast.model.hint import Hint

STREAMS = {level: f"holdfast:hints:{level}" for level in LEVELS}
FIELD = b"hint"
LENGTH_MAX = 10_000  # of a stream, more or less: the oldest go first
TAKE_OVER_SECONDS = 10.0  # how often a reader looks for what dead ones have left
DEAD_SECONDS = 30.0  # whoever took a hint and says nothing for so long is dead
TAKEN_OVER_MAX = 100

Receipt = tuple[bytes, bytes]  # stream, number


class RedisBroker:
    """`kind`: whose hints are received; None sends only."""

    def __init__(self, url: str, kind: str | None, clock: Clock, ids: Ids) -> None:
        self.garbage = 0
        self._clock, self._ids = clock, ids
        self._line = RedisConnection(url)
        self._group = kind
        self._reader = f"{ids.bits(64):016x}"
        self._reading = ("XREADGROUP", "GROUP", kind, self._reader)
        self._in_hand: set[Receipt] = set()
        self._passing_on: asyncio.Task[None] | None = None
        self._take_over_at = 0.0
        self._places = dict.fromkeys(STREAMS.values(), b"0-0")  # where the search for what dead ones left goes on

    async def open(self) -> None:
        """A group begins with what comes from now on: whoever opens it looks into the database first."""
        self._in_hand.clear()
        made: list[Command] = [("PING",)]
        for stream in STREAMS.values() if self._group is not None else ():
            made.append(("XGROUP", "CREATE", stream, self._group, "$", "MKSTREAM"))
            made.append(("XGROUP", "CREATECONSUMER", stream, self._group, self._reader))
        await self._line.ask(made, allow="BUSYGROUP")

    async def send(self, hints: list[Hint]) -> None:
        await self._line.ask([_addition(hint) for hint in hints], twice=True)

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        try:
            return await self._take_over_at_times() or await self._take(seconds, most)
        except asyncio.CancelledError:
            self._passing_on = self._passing_on or asyncio.create_task(self._pass_on())
            raise

    async def _take(self, seconds: float, most: int) -> list[ReceivedHint]:
        block = ("BLOCK", max(1, round(seconds * 1000))) if seconds > 0 else ()  # 0 would be for ever
        reading = (*self._reading, "COUNT", most, *block)
        (found,) = await self._line.ask(
            [(*reading, "STREAMS", *STREAMS.values(), *(">" for _ in STREAMS))], seconds=seconds + CALL_SECONDS
        )
        return await self._read(_entries(found))

    async def settle(self, seen: list[ReceivedHint]) -> None:
        await self._acknowledge(delivery.receipt for delivery in seen)

    async def give_back(self, unseen: list[ReceivedHint]) -> None:
        """Redis takes nothing back; sent again, they come to somebody else."""
        await self.send([delivery.hint for delivery in unseen])
        await self.settle(unseen)

    async def close(self) -> None:
        if self._passing_on is not None:
            await asyncio.wait([self._passing_on])
        await self._line.close()

    async def _pass_on(self) -> None:
        """Whoever stops waiting may just have been given something, and those who still wait would not hear of it."""
        try:
            with contextlib.suppress(BrokerError):
                (found,) = await self._line.ask(
                    [(*self._reading, "STREAMS", *STREAMS.values(), *("0" for _ in STREAMS))]
                )
                unheard = [each for each in _entries(found) if (each[0], each[1][0]) not in self._in_hand]
                if unheard:
                    await self.give_back(await self._read(unheard))
        finally:
            self._passing_on = None

    async def _take_over_at_times(self) -> list[ReceivedHint]:
        if (now := self._clock.monotonic()) < self._take_over_at:
            return []
        self._take_over_at = now + TAKE_OVER_SECONDS * (0.75 + 0.5 * self._ids.jitter())
        if not (left := await self._take_over()):
            await tidy(self._line, STREAMS.values())
        return left

    async def _take_over(self) -> list[ReceivedHint]:
        """Hints that somebody of our kind took and died with. Those trimmed meanwhile are gone, here as there."""
        idle, most = round(DEAD_SECONDS * 1000), TAKEN_OVER_MAX
        answers = await self._line.ask(
            [
                ("XAUTOCLAIM", stream, self._group, self._reader, idle, place, "COUNT", most)
                for stream, place in self._places.items()
            ]
        )
        left = [(stream.encode(), answer[1]) for stream, answer in zip(self._places, answers, strict=True)]
        self._places = {stream: answer[0] for stream, answer in zip(self._places, answers, strict=True)}
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
            await self._line.ask([("XACK", stream, self._group, *numbers) for stream, numbers in by_stream.items()])


def _entries(found: Any) -> list[tuple[bytes, Any]]:
    """(stream, (number, fields)) of each; not of those that were trimmed while somebody had them."""
    return [(stream, entry) for stream, entries in found or () for entry in entries if entry and entry[1]]


def _addition(hint: Hint) -> Command:
    return ("XADD", STREAMS[level_of(hint)], "MAXLEN", "~", LENGTH_MAX, "*", FIELD, written(hint))
