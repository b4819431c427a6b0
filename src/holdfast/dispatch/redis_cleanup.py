"""Removes unused consumer groups and consumers from Redis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.dispatch.redis_connection import RedisConnection

CLEANUP_LOCK = "holdfast:hints:cleanup"
EVERY_SECONDS = 60  # by one process for all
GONE_SECONDS = 600.0  # idle for so long, a consumer is removed; a busy worker polls meanwhile


async def remove_unused(connection: RedisConnection, streams: Iterable[str]) -> None:
    """A worker that finds its group removed creates a new one, and polls the database."""
    (ours,) = await connection.call([("SET", CLEANUP_LOCK, "1", "NX", "EX", EVERY_SECONDS)])
    if ours:
        for stream in streams:
            (groups,) = await connection.call([("XINFO", "GROUPS", stream)])
            for group in groups:
                await _clean_group(connection, stream, _named(group)[b"name"])


async def _clean_group(connection: RedisConnection, stream: str, group: bytes) -> None:
    (listed,) = await connection.call([("XINFO", "CONSUMERS", stream, group)])
    consumers = [_named(consumer) for consumer in listed]
    gone = [consumer for consumer in consumers if consumer[b"idle"] > GONE_SECONDS * 1000]
    if len(gone) == len(consumers):
        await connection.call([("XGROUP", "DESTROY", stream, group)])
        return
    for consumer in gone:
        if not consumer[b"pending"]:  # deleting it would lose its pending hints
            await connection.call([("XGROUP", "DELCONSUMER", stream, group, consumer[b"name"])])


def _named(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
