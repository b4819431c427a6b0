"""Taskiq on Redis streams, the broker with acknowledgements."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common import URL, Calls, async_noop
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(URL or "redis://", consumer_id="0")  # the group reads what was sent before it began


@broker.task("noop")
async def noop(data: str) -> None:
    await async_noop(data)


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    await broker.startup()
    yield Calls(noop.kiq)
    await broker.shutdown()
