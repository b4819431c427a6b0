"""PgQueuer on asyncpg, as its own documentation sets it up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from common import URL, Calls, async_noop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """What `pgq run` is given."""
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        await async_noop((job.payload or b"").decode())

    yield queuer


async def prepare() -> None:
    connection = await asyncpg.connect(URL)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    """Several callers share a pool of asyncpg's usual size; one has a connection."""
    if callers > 1:
        async with asyncpg.create_pool(URL, min_size=10, max_size=10) as pool:
            yield _calls(Queries(AsyncpgPoolDriver(pool)))
    else:
        connection = await asyncpg.connect(URL)
        yield _calls(Queries(AsyncpgDriver(connection)))
        await connection.close()


def _calls(queries: Queries) -> Calls:
    async def one(data: str) -> None:
        await queries.enqueue("noop", data.encode())

    async def bulk(data: list[str]) -> None:
        await queries.enqueue(["noop"] * len(data), [each.encode() for each in data], [0] * len(data))

    return Calls(one, bulk)
