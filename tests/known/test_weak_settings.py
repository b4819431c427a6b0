"""A database that may lose what it acknowledged is told of where people look: at the start, and in `/health` (S19)."""

import asyncio
import logging
from typing import Any

import asyncpg
import pytest

from holdfast import starting
from holdfast.cli.serve import server_of
from holdfast.server import pulse
from holdfast.settings import Settings
from tests.conftest import administer
from tests.logs import logged
from tests.server.steps import SECRET, Served, serving

PATIENCE_SECONDS = 60.0
OFF = "synchronous_commit is off: a crash can lose jobs that were acknowledged"


async def weaken(url: str, value: str) -> None:
    connection = await asyncpg.connect(url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.close()
    await administer(url, f"ALTER DATABASE {name} SET synchronous_commit = {value}")


async def start(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """As `holdfast serve` does."""
    with caplog.at_level(logging.WARNING, "holdfast.starting"):
        async with server_of(Settings(database_url=url, admin_secret=SECRET), None, "127.0.0.1") as server:
            await server.engine.now()


async def checked(served: Served) -> dict[str, Any]:
    """What it says once it has asked the database."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            health: dict[str, Any] = (await served.http.get("/health")).json()
            if "checkedAt" in health:
                return health
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("value", "said"), [("off", True), ("on", False)])
async def test_a_server_warns_at_its_start_and_in_health_of_settings_that_can_lose_jobs(
    fresh_postgres_url: str, value: str, said: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(starting, "_said", set())
    monkeypatch.setattr(pulse, "EVERY_SECONDS", 0.05)
    await weaken(fresh_postgres_url, value)
    await start(fresh_postgres_url, caplog)
    async with serving(fresh_postgres_url) as served:
        health = await checked(served)
    assert (OFF in caplog.text) is said
    assert (OFF in (health.get("weakSettings") or [])) is said
    assert health["status"] == "ok"


async def test_a_server_on_sqlite_has_nothing_to_warn_of(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(starting, "_said", set())
    await start(fresh_sqlite_url, caplog)
    async with serving(fresh_sqlite_url) as served:
        assert "weakSettings" not in (await served.http.get("/health")).json()
    assert logged(caplog) == []
