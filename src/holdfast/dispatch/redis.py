"""Hints through Redis Streams: one stream for each level of priority, a group of readers for each kind of worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.dispatch.broker import BrokerError, Delivery, Missing
from holdfast.dispatch.messages import LEVELS, level_of, read, written
from holdfast.dispatch.redis_tidy import tidy
from holdfast.ids import Ids
from holdfast.model.hint import Hint

STREAMS = {level: f"holdfast:hints:{level}" for level in LEVELS}
FIELD = b"hint"
LENGTH_MAX = 10_000  # of a stream, more or less: the oldest go first
CALL_SECONDS = 1.5  # what Redis takes longer for, it does not do
TAKE_OVER_SECONDS = 10.0  # how often a reader looks for what dead ones have left
DEAD_SECONDS = 30.0  # whoever took a hint and says nothing for so long is dead
TAKEN_OVER_MAX = 100

T = TypeVar("T")


class RedisBroker:
    """`kind`: whose hints are received; None sends only."""

    def __init__(self, url: str, kind: str | None, clock: Clock, ids: Ids, *, pool_size: int = 10) -> None:
        self.garbage = 0
        self._clock, self._ids = clock, ids
        self._redis = connect(url, pool_size)
        self._group = kind
        self._reader = f"{ids.bits(64):016x}"
        self._take_over_at = 0.0
        self._places = dict.fromkeys(STREAMS.values(), b"0-0")  # where the search for what dead ones left goes on

    async def open(self) -> None:
        """A group begins with what comes from now on: whoever opens it looks into the database first."""
        if self._group is None:
            await self._call(self._redis.ping())
            return
        made: list[tuple[Any, ...]] = []
        for stream in STREAMS.values():
            made.append(("XGROUP", "CREATE", stream, self._group, "$", "MKSTREAM"))
            made.append(("XGROUP", "CREATECONSUMER", stream, self._group, self._reader))
        await self._run(made, allow="BUSYGROUP")

    async def send(self, hints: list[Hint]) -> None:
        await self._run(
            [("XADD", STREAMS[level_of(hint)], "MAXLEN", "~", LENGTH_MAX, "*", FIELD, written(hint)) for hint in hints]
        )

    async def receive(self, seconds: float, most: int) -> list[Delivery]:
        if (now := self._clock.monotonic()) >= self._take_over_at:
            self._take_over_at = now + TAKE_OVER_SECONDS * (0.75 + 0.5 * self._ids.jitter())
            left = await self._take_over()
            await tidy(self._call, self._redis, STREAMS.values())
            if left:
                return left
        block = max(1, round(seconds * 1000)) if seconds > 0 else None  # 0 would be for ever
        reading = self._redis.xreadgroup(
            self._group, self._reader, dict.fromkeys(STREAMS.values(), ">"), count=most, block=block
        )
        found = await self._call(reading, seconds + CALL_SECONDS)
        return await self._read((stream, entry) for stream, entries in found or () for entry in entries)

    async def settle(self, seen: list[Delivery]) -> None:
        await self._acknowledge(delivery.receipt for delivery in seen)

    async def give_back(self, unseen: list[Delivery]) -> None:
        """Redis takes nothing back; sent again, they come to somebody else."""
        await self.send([delivery.hint for delivery in unseen])
        await self.settle(unseen)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _take_over(self) -> list[Delivery]:
        """Hints that somebody of our kind took and died with. Those trimmed meanwhile are gone, here as there."""
        idle, most = round(DEAD_SECONDS * 1000), TAKEN_OVER_MAX
        answers = await self._run(
            [
                ("XAUTOCLAIM", stream, self._group, self._reader, idle, place, "COUNT", most)
                for stream, place in self._places.items()
            ]
        )
        self._places = {stream: answer[0] for stream, answer in zip(self._places, answers, strict=True)}
        left = zip(STREAMS.values(), (answer[1] for answer in answers), strict=True)
        return await self._read((stream, entry) for stream, entries in left for entry in entries)

    async def _read(self, entries: Iterable[tuple[Any, Any]]) -> list[Delivery]:
        found, garbage = [], []
        for stream, (number, fields) in entries:
            if number is None:  # trimmed away, as an older Redis says it
                continue
            if (hint := read((fields or {}).get(FIELD))) is not None:
                found.append(Delivery(hint, (stream, number)))
            else:
                garbage.append((stream, number))
        self.garbage += len(garbage)
        await self._acknowledge(garbage)
        return found

    async def _acknowledge(self, receipts: Iterable[tuple[Any, Any]]) -> None:
        by_stream: dict[Any, list[Any]] = {}
        for stream, number in receipts:
            by_stream.setdefault(stream, []).append(number)
        await self._run([("XACK", stream, self._group, *numbers) for stream, numbers in by_stream.items()])

    async def _run(self, commands: list[tuple[Any, ...]], *, allow: str | None = None) -> list[Any]:
        """In one round trip; one alone without the cost of several."""
        if len(commands) < 2:
            return [await self._call(self._redis.execute_command(*command)) for command in commands]
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await self._call(pipeline.execute(raise_on_error=False))
        for answer in answers:
            if isinstance(answer, Exception) and not (allow and str(answer).startswith(allow)):
                raise _told(answer)
        return answers

    async def _call(self, asked: Awaitable[T], seconds: float = CALL_SECONDS) -> T:
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(seconds):
                return await asked
        except TimeoutError:
            raise BrokerError("Redis does not answer") from None
        except (RedisError, OSError) as error:
            raise _told(error) from None


def connect(url: str, pool_size: int) -> Any:
    """A client that fails at once, and has its own connections. `ValueError` or `TypeError`: the URL is not one."""
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    ours: dict[str, Any] = {
        "max_connections": pool_size,
        "timeout": CALL_SECONDS,
        "socket_timeout": None,  # each call has a time limit
        "socket_connect_timeout": CALL_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # that is for the breaker to say
        "protocol": 2,
        "decode_responses": False,
    }
    pool = BlockingConnectionPool(**{**parse_url(url), **ours})
    pool.connection_class(**pool.connection_kwargs)  # not connected; but an option that nobody knows is refused now
    return Redis.from_pool(pool)


def _told(error: Exception) -> BrokerError:
    """What Redis says holds no password; what it cannot do, whatever the reason, is done by the database meanwhile."""
    said = " ".join(str(error).split())[:200] or type(error).__name__
    gone = said.startswith(("NOGROUP", "UNBLOCKED", "no such key"))
    return Missing(f"Redis: {said}") if gone else BrokerError(f"Redis: {said}")
