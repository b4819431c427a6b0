"""A raw connection to Redis with time limits; replies are not interpreted."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import urlsplit

from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.broker import BrokerError, SubscriptionLost

CALL_SECONDS = 1.5  # time limit of a round trip

_DATABASE = re.compile(r"/?\d*")

Command = tuple[Any, ...]


class RedisConnection:
    """One connection, one round trip at a time: half the cost of a client with a pool.

    It connects on demand, and again after an error. `ValueError` or `TypeError`: the URL is invalid.
    """

    def __init__(self, url: str) -> None:
        connection_class, options = _options(url)
        self._connection = _create(connection_class, options)
        self._free = asyncio.Lock()

    async def call(
        self,
        commands: list[Command],
        *,
        seconds: float = CALL_SECONDS,
        allow: str = "NOTHING",
        retry: bool = False,
    ) -> list[Any]:
        """The reply to each command. `allow`: the prefix of an error reply that is accepted. `retry`: retry once if the
        connection was closed, for example because it was idle."""
        from redis.exceptions import ConnectionError as Closed
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(seconds), self._free:
                try:
                    answers = await self._round_trip(commands)
                except Closed:
                    if not retry:
                        raise
                    answers = await self._round_trip(commands)
        except TimeoutError:
            raise BrokerError("Redis call timed out") from None
        except (RedisError, OSError) as error:
            raise broker_error(error) from None
        for answer in answers:
            if isinstance(answer, Exception) and not str(answer).startswith(allow):
                raise broker_error(answer)
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
    """A client with a connection pool, for concurrent calls; each call needs a time limit."""
    from redis.asyncio import BlockingConnectionPool, Redis

    connection_class, options = _options(url)
    pool = BlockingConnectionPool(
        max_connections=pool_size, timeout=CALL_SECONDS, connection_class=connection_class, **options
    )
    _create(pool.connection_class, pool.connection_kwargs)
    return Redis.from_pool(pool)


async def reply_to(pending: Any, breaker: Breaker, seconds: float = CALL_SECONDS) -> Any:
    """The reply to a call of such a client; None if Redis is unreachable or too slow."""
    from redis.exceptions import RedisError

    try:
        async with asyncio.timeout(seconds):
            answer = await pending
    except (RedisError, OSError, TimeoutError) as error:
        breaker.failed(type(error).__name__)
        return None
    breaker.succeeded()
    return answer


def _create(connection_class: Any, options: dict[str, Any]) -> Any:
    """Not connected yet, but invalid options are rejected now."""
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
        raise ValueError("the database of a Redis URL must be a number")  # redis-py would use 0
    options: dict[str, Any] = {
        **parse_url(url),
        "socket_timeout": None,  # each call has a time limit
        "socket_connect_timeout": CALL_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # the circuit breaker decides
        "protocol": 2,
        "decode_responses": False,
    }
    return options.pop("connection_class", Connection), options


def broker_error(error: Exception) -> BrokerError:
    """Redis' own message, which contains no password."""
    text = " ".join(str(error).split())[:200] or type(error).__name__
    gone = text.startswith(("NOGROUP", "UNBLOCKED", "no such key"))
    return SubscriptionLost("Redis: the streams of hints do not exist") if gone else BrokerError(f"Redis: {text}")
