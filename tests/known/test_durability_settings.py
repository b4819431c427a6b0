"""A database that may lose acknowledged writes causes a warning at startup and in `/health` (S19)."""

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.assembly import startup_log
from holdfast.cli.serve import server_of
from holdfast.server import health_monitor
from holdfast.settings import Settings
from holdfast.store import diagnostics
from holdfast.store.diagnostics import sqlite_defect
from holdfast.store.queries import Query
from tests.cli.background import Background
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
    with caplog.at_level(logging.WARNING, "holdfast.assembly.startup_log"):
        async with server_of(Settings(database_url=url, admin_secret=SECRET), None, "127.0.0.1") as server:
            await server.engine.reads.now()


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
    monkeypatch.setattr(startup_log, "_logged", set())
    monkeypatch.setattr(health_monitor, "EVERY_SECONDS", 0.05)
    await weaken(fresh_postgres_url, value)
    await start(fresh_postgres_url, caplog)
    async with serving(fresh_postgres_url) as served:
        health = await checked(served)
    assert (OFF in caplog.text) is said
    assert (OFF in (health.get("weakSettings") or [])) is said
    assert health["status"] == "ok"


@pytest.mark.parametrize(("version", "said"), [("3.40.1", True), ("3.51.2", True), ("3.51.3", False), ("4.0.0", False)])
async def test_a_server_warns_of_an_sqlite_version_that_can_corrupt_the_wal(
    fresh_sqlite_url: str, version: str, said: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(startup_log, "_logged", set())
    monkeypatch.setattr(health_monitor, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(diagnostics, "_VERSION", Query("diagnostics_version", f"SELECT '{version}' AS version"))
    await start(fresh_sqlite_url, caplog)
    async with serving(fresh_sqlite_url) as served:
        health = await checked(served)
    warnings = [line for line in logged(caplog) if "can damage its log" in line]
    assert [f"SQLite {version} can damage" in line for line in warnings] == [True] * said
    assert [f"SQLite {version} can damage" in line for line in health.get("weakSettings", [])] == [True] * said
    assert health["status"] == "ok"


@pytest.mark.sqlite
@pytest.mark.parametrize("name", ["worker", "dev"])
def test_a_worker_warns_once_at_startup_of_an_sqlite_version_that_can_corrupt_the_wal(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "tasks.py").write_text("from holdfast import App\napp = App()\napp.job('a')(lambda: None)\n")
    port = ("--port", "0") if name == "dev" else ()
    with Background(name, "--app", "tasks:app", *port, folder=tmp_path) as command:
        command.until_it_says("ready: ")
        assert command.end() == 0
        defective = sqlite_defect(sqlite3.sqlite_version)
        assert command.said.count("can damage its log") == (1 if defective else 0)
