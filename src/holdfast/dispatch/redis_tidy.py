"""What nobody uses any more in Redis: groups of a kind of worker that is gone, and readers that are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

TIDIED = "holdfast:hints:tidied"
EVERY_SECONDS = 60  # by one of all
GONE_SECONDS = 600.0  # without a word: all its workers are gone, or busy for so long that they look for themselves

Call = Callable[[Awaitable[Any]], Awaitable[Any]]


async def tidy(call: Call, redis: Any, streams: Iterable[str]) -> None:
    """Whoever is still there and finds its group gone makes a new one, and looks into the database."""
    if await call(redis.set(TIDIED, b"1", nx=True, ex=EVERY_SECONDS)):
        for stream in streams:
            for group in await call(redis.xinfo_groups(stream)):
                await _tidy_group(call, redis, stream, group["name"])


async def _tidy_group(call: Call, redis: Any, stream: str, group: Any) -> None:
    readers = await call(redis.xinfo_consumers(stream, group))
    gone = [reader for reader in readers if reader["idle"] > GONE_SECONDS * 1000]
    if len(gone) == len(readers):
        await call(redis.xgroup_destroy(stream, group))
        return
    for reader in gone:
        if not reader["pending"]:  # else its hints would go with it
            await call(redis.xgroup_delconsumer(stream, group, reader["name"]))
