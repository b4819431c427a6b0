"""SAQ on Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from common import URL, Calls, async_noop
from saq import Queue

queue = Queue.from_url(URL or "redis://")


async def noop(ctx: Any, *, data: str) -> None:
    await async_noop(data)


settings = {"queue": queue, "functions": [noop], "concurrency": 100}


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    await queue.connect()

    async def one(data: str) -> None:
        await queue.enqueue("noop", data=data)

    yield Calls(one)
    await queue.disconnect()
