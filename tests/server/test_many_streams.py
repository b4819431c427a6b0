"""Many idle event streams cost the database nothing (K38, F39)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.model import NewJob
from holdfast.server.live import feed as feeds
from tests.engine.steps import ask
from tests.server.steps import Served, serving
from tests.worker.in_process import until

STREAMS = 300
LOOKS = 8
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def crowd(served: Served, paths: list[str]) -> AsyncIterator[list[Connection]]:
    """Each has got its headers and the first words."""
    connections = [await opened(served, path) for path in paths]
    try:
        yield connections
    finally:
        for _, writer in connections:
            writer.close()


async def opened(served: Served, path: str) -> Connection:
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
    async with asyncio.timeout(60):
        assert b" 200 " in await reader.readline()
        while b"retry: " not in await reader.readline():
            continue
    return reader, writer


async def until_said(reader: asyncio.StreamReader, word: bytes) -> None:
    async with asyncio.timeout(60):
        while word not in await reader.readline():
            continue


async def few_connections_are_used(served: Served) -> bool:
    """Now and then the server itself uses some; a stream that held one would hold it all the time."""
    [row] = await ask(
        served.engine,
        "SELECT count(*) AS number FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'",
    )
    return int(row["number"]) - 1 < 5  # this one is one of them


async def test_idle_streams_hold_no_connections_and_send_no_queries(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K38, F39, SEC-37: what the database is asked does not depend on how many watch."""
    monkeypatch.setattr(feeds, "IDLE_SECONDS", 0.02)
    async with serving(store_url) as served:
        jobs = await served.engine.create_many([NewJob(type="t") for _ in range(STREAMS - 20)])
        async with crowd(served, [*(f"/jobs/{job.id}/events" for job in jobs), *["/events"] * 20]) as streams:
            for reader, _ in streams[:-20]:
                await until_said(reader, b'"verb":"create"')
            assert served.server.streams.total() == STREAMS

            reads, looks = await counted(served, monkeypatch)
            assert reads - looks < 60, "not one for each stream"
            if store_url.startswith("postgres"):
                await until(lambda: few_connections_are_used(served))

            await served.engine.cancel(jobs[7].id)
            await until_said(streams[7][0], b'"CANCELED"')
            for reader, _ in streams[-20:]:
                await until_said(reader, jobs[7].id.encode())


async def counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often the database was read, and how often of that for the feed, while that looked a few times."""
    store, engine = served.engine.store, served.engine
    read, feed = store.read, engine.reads.feed
    reads = looks = 0
    enough = asyncio.Event()

    async def reading(work: object) -> object:
        nonlocal reads
        reads += 1
        return await read(work)  # type: ignore[arg-type]

    async def looking(*arguments: object, **more: object) -> object:
        nonlocal looks
        looks += 1
        if looks == LOOKS:
            enough.set()
        return await feed(*arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as counting:
        counting.setattr(store, "read", reading)
        counting.setattr(engine.reads, "feed", looking)
        async with asyncio.timeout(60):
            await enough.wait()
    return reads, looks
