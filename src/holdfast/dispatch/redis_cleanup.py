"""What nobody uses any more in Redis: groups of a kind of worker that is gone, and readers that are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.dispatch.redis_connection import RedisConnection

TIDIED = "holdfast:hints:tidied"
EVERY_SECONDS = 60  # by one of all
GONE_SECONDS = 600.0  # without a word: all its workers are gone, or busy for so long that they look for themselves


async def tidy(line: RedisConnection, streams: Iterable[str]) -> None:
    """Whoever is still there and finds its group gone makes a new one, and looks into the database."""
    (ours,) = await line.ask([("SET", TIDIED, "1", "NX", "EX", EVERY_SECONDS)])
    if ours:
        for stream in streams:
            (groups,) = await line.ask([("XINFO", "GROUPS", stream)])
            for group in groups:
                await _tidy_group(line, stream, _named(group)[b"name"])


async def _tidy_group(line: RedisConnection, stream: str, group: bytes) -> None:
    (listed,) = await line.ask([("XINFO", "CONSUMERS", stream, group)])
    readers = [_named(reader) for reader in listed]
    gone = [reader for reader in readers if reader[b"idle"] > GONE_SECONDS * 1000]
    if len(gone) == len(readers):
        await line.ask([("XGROUP", "DESTROY", stream, group)])
        return
    for reader in gone:
        if not reader[b"pending"]:  # else its hints would go with it
            await line.ask([("XGROUP", "DELCONSUMER", stream, group, reader[b"name"])])


def _named(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
