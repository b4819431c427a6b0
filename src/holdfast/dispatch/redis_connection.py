"""A connection to Redis that fails soon and says why; what comes back is as Redis says it, without interpretation."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import urlsplit

from holdfast.dispatch.broker import BrokerError, SubscriptionLost

CALL_SECONDS = 1.5  # what Redis takes longer for, it does not do

_DATABASE = re.compile(r"/?\d*")

Command = tuple[Any, ...]


class RedisConnection:
    """One connection, for one round trip at a time: half the cost of a client with a pool, and hints want to be quick.

    It connects when it is needed, and again after whatever went wrong. `ValueError` or `TypeError`: the URL is not one.
    """

    def __init__(self, url: str) -> None:
        connection_class, options = _options(url)
        self._connection = _made(connection_class, options)
        self._free = asyncio.Lock()

    async def ask(
        self,
        commands: list[Command],
        *,
        seconds: float = CALL_SECONDS,
        allow: str = "NOTHING",
        twice: bool = False,
    ) -> list[Any]:
        """The answer to each. `allow`: a refusal that begins so is one, too. `twice`: it may have been closed because
        it said nothing for long, and that is no failure."""
        from redis.exceptions import ConnectionError as Closed
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(seconds), self._free:
                try:
                    answers = await self._round_trip(commands)
                except Closed:
                    if not twice:
                        raise
                    answers = await self._round_trip(commands)
        except TimeoutError:
            raise BrokerError("Redis does not answer") from None
        except (RedisError, OSError) as error:
            raise told(error) from None
        for answer in answers:
            if isinstance(answer, Exception) and not str(answer).startswith(allow):
                raise told(answer)
        return answers

    async def _round_trip(self, commands: list[Command]) -> list[Any]:
        from redis.exceptions import ResponseError

        packed = self._connection.pack_commands(commands)
        await self._connection.send_packed_command(packed, check_health=False)
        answers: list[Any] = []
        for _ in commands:
            try:
                answers.append(await self._connection.read_response())
            except ResponseError as refusal:
                answers.append(refusal)
        return answers

    async def close(self) -> None:
        await self._connection.disconnect()


def connect(url: str, pool_size: int) -> Any:
    """A client with connections of its own, for those who ask many things at once; each call needs a time limit."""
    from redis.asyncio import BlockingConnectionPool, Redis

    connection_class, options = _options(url)
    pool = BlockingConnectionPool(
        max_connections=pool_size, timeout=CALL_SECONDS, connection_class=connection_class, **options
    )
    _made(pool.connection_class, pool.connection_kwargs)
    return Redis.from_pool(pool)


def _made(connection_class: Any, options: dict[str, Any]) -> Any:
    """Not connected; but an option that is not one is refused now."""
    from redis.exceptions import RedisError

    try:
        return connection_class(**options)
    except RedisError as error:
        raise ValueError(str(error)) from error


def _options(url: str) -> tuple[Any, dict[str, Any]]:
    from redis.asyncio.connection import Connection, parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    if not _DATABASE.fullmatch(urlsplit(url).path) and not url.startswith("unix:"):
        raise ValueError("the database of a Redis is a number")  # it would be taken for 0
    options: dict[str, Any] = {
        **parse_url(url),
        "socket_timeout": None,  # each call has a time limit
        "socket_connect_timeout": CALL_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # that is for the breaker to say
        "protocol": 2,
        "decode_responses": False,
    }
    return options.pop("connection_class", Connection), options


def told(error: Exception) -> BrokerError:
    """What Redis says holds no password; what it cannot do, whatever the reason, is done by the database meanwhile."""
    said = " ".join(str(error).split())[:200] or type(error).__name__
    gone = said.startswith(("NOGROUP", "UNBLOCKED", "no such key"))
    return SubscriptionLost("Redis: the streams of hints are not there") if gone else BrokerError(f"Redis: {said}")
