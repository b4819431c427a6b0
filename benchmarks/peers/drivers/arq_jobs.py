"""arq, tuned: its default looks for jobs twice a second and runs ten at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from common import URL, Calls, async_noop


async def noop(ctx: dict[str, Any], data: str) -> None:
    await async_noop(data)


class Worker:
    """What `arq` is given."""

    functions = (noop,)
    redis_settings = RedisSettings.from_dsn(URL or "redis://")
    max_jobs = 100
    poll_delay = 0.05
    keep_result = 0
    job_timeout = 600


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    pool = await create_pool(Worker.redis_settings)

    async def one(data: str) -> None:
        await pool.enqueue_job("noop", data)

    yield Calls(one)
    await pool.aclose()
