"""An operator who looks into `pg_stat_activity` sees which process each connection belongs to."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg

from holdfast.assembly.engine import open_engine
from holdfast.settings import Settings
from tests.cli.processes import PROGRAM, environment, holdfast

SECONDS = 60


@contextlib.contextmanager
def running(*typed: str, folder: Path, url: str) -> Iterator[None]:
    environ = environment(HOLDFAST_DATABASE_URL=url)
    process = subprocess.Popen([*PROGRAM, *typed], cwd=folder, env=environ, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


async def names(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
    return {row["application_name"] for row in rows}


async def until_named(url: str, wanted: set[str]) -> None:
    async with asyncio.timeout(SECONDS):
        while not wanted <= await names(url):  # noqa: ASYNC110  PostgreSQL does not tell
            await asyncio.sleep(0.2)


async def test_workers_and_servers_name_their_connections(tmp_path: Path, fresh_postgres_url: str) -> None:
    (tmp_path / "tasks.py").write_text("from holdfast import App\napp = App()\n@app.job()\ndef work() -> None: ...\n")
    assert holdfast("migrate", folder=tmp_path, url=fresh_postgres_url).returncode == 0
    with (
        running("worker", "--app", "tasks:app", folder=tmp_path, url=fresh_postgres_url),
        running("serve", "--port", "0", folder=tmp_path, url=fresh_postgres_url),
    ):
        await until_named(fresh_postgres_url, {"holdfast worker", "holdfast worker heartbeat", "holdfast server"})
    with running("top", "--once", "--interval", "60", folder=tmp_path, url=fresh_postgres_url):
        await until_named(fresh_postgres_url, {"holdfast cli"})


async def test_a_name_in_the_url_is_kept(tmp_path: Path, fresh_postgres_url: str) -> None:
    assert holdfast("migrate", folder=tmp_path, url=fresh_postgres_url).returncode == 0
    named = f"{fresh_postgres_url}{'&' if '?' in fresh_postgres_url else '?'}application_name=billing"
    engine = await open_engine(Settings(database_url=named))
    try:
        await engine.reads.now()
        assert "billing" in await names(fresh_postgres_url)
    finally:
        await engine.close()
