"""Chancy with its executor for coroutines."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chancy import Chancy, Queue, job
from common import URL, Calls, async_noop

chancy = Chancy(URL, log=logging.getLogger("chancy"))


@job(queue="default")
async def noop(*, data: str) -> None:
    await async_noop(data)


async def prepare() -> None:
    async with chancy:
        await chancy.migrate()
        await chancy.declare(
            Queue("default", concurrency=100, executor="chancy.executors.asyncex.AsyncExecutor", eager_polling=True)
        )


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    async with chancy:

        async def one(data: str) -> None:
            await chancy.push(noop.job.with_kwargs(data=data))

        async def bulk(data: list[str]) -> None:
            async for _ in chancy.push_many([noop.job.with_kwargs(data=each) for each in data]):
                pass

        yield Calls(one, bulk)
