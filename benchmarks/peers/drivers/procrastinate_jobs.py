"""Procrastinate on psycopg's pool, as its own documentation sets it up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common import URL, Calls, async_noop
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(name="noop")
async def noop(data: str) -> None:
    await async_noop(data)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    async with app.open_async():

        async def one(data: str) -> None:
            await noop.defer_async(data=data)

        async def bulk(data: list[str]) -> None:
            await noop.batch_defer_async(*({"data": each} for each in data))

        yield Calls(one, bulk)
