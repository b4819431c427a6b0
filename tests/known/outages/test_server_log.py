"""What a server logs when the database is unreachable: one warning, and one line when it is back."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.logs import logged
from tests.server.steps import ADMIN, Served, bearer, serving
from tests.servers.proxy import Proxy
from tests.worker.real_processes.harness import eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

PARTS = (
    "ask the database for its health",
    "read the event log",
    "look for jobs for waiting claims",
    "send webhooks",
    "record worker events",
    "do maintenance",
)


async def test_a_database_outage_logs_one_warning_and_one_line_at_its_end(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Though each of the loops beside a server's answers notices it."""
    async with (
        Proxy.to(fresh_postgres_url) as wire,
        serving(wire.url, sweep_seconds=1.0) as served,
        waiting_for_work(served),
        served.http.stream("GET", "/api/admin/events", headers=ADMIN) as events,
    ):
        assert events.status_code == 200
        await eventually(lambda: served.server.long_poll._waiting)
        with caplog.at_level(logging.DEBUG, "holdfast"):
            await wire.go_away()
            await eventually(lambda: all(f"cannot {part}" in "\n".join(logged(caplog)) for part in PARTS))
            await wire.come_back()
            await eventually(lambda: "is reachable again" in caplog.text)
            await eventually(lambda: is_ready(served))
            told = [line for line in logged(caplog, logging.INFO) if not line.startswith("request ")]
    assert len(told) == 2, told
    assert told[0].startswith("cannot ")
    assert told[1].startswith("the database is reachable again after ")


@asynccontextmanager
async def waiting_for_work(served: Served) -> AsyncIterator[None]:
    """A worker over HTTP is in a long poll, and asks again when one ends."""
    key = bearer((await served.register())["apiKey"])

    async def ask() -> None:
        while True:
            await served.http.post("/api/worker/claim", json={"waitSeconds": 30}, headers=key)
            await asyncio.sleep(0.1)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def is_ready(served: Served) -> bool:
    return (await served.http.get("/readyz")).status_code == 200
