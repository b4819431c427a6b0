"""An app and every command agree on the database, and a message that asks for a migration names it."""

import secrets
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast import App
from holdfast.errors import SchemaStale
from holdfast.redaction import without_password
from holdfast.settings import Settings, load, migrate_command
from tests.cli.processes import PROGRAM, SECONDS, environment
from tests.conftest import administer, with_database

TASKS = """
from holdfast import App

app = App(database_url={url!r})


@app.job(queue="parcels")
async def ship(order: int) -> None: ...


if __name__ == "__main__":
    print(ship.enqueue_sync(order=1).id)
"""
DRIVERS = ["postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"]


def holdfast(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def run(folder: Path) -> "subprocess.CompletedProcess[str]":
    """The program that enqueues."""
    command = [PROGRAM[0], "tasks.py"]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def app_on(url: str, folder: Path) -> Path:
    (folder / "tasks.py").write_text(TASKS.format(url=url))
    return folder


@pytest.fixture
async def unmigrated(postgres_server_url: str) -> AsyncIterator[str]:
    """The URL of an empty database, with a password in it that the server does not ask for."""
    name = f"hf_empty_{secrets.token_hex(8)}"
    await administer(postgres_server_url, f"CREATE DATABASE {name}")
    url = urlsplit(with_database(postgres_server_url, name))
    yield url._replace(netloc=url.netloc.replace("@", ":hush@")).geturl()
    await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("how", ["option", "variable", "file"])
def test_the_commands_use_the_database_that_the_app_names(tmp_path: Path, how: str) -> None:
    app_on("sqlite:///shop.db", tmp_path)
    words = ["--app", "tasks:app"] if how == "option" else []
    variables = {"HOLDFAST_APP": "tasks:app"} if how == "variable" else {}
    if how == "file":
        (tmp_path / "holdfast.toml").write_text('app = "tasks:app"\n')
    created = run(tmp_path).stdout.strip()
    assert created in holdfast(tmp_path, "jobs", "list", "--json", *words, **variables).stdout
    others = [["queues", "list"], ["doctor"], ["migrate"], ["jobs", "create", "ship", "--payload", '{"order": 2}']]
    for command in others if how == "option" else ():
        done = holdfast(tmp_path, *command, *words, **variables)
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / ".holdfast" / "holdfast.db").exists()


def test_the_command_line_wins_over_the_app_and_the_app_over_the_environment(tmp_path: Path) -> None:
    app_on("sqlite:///shop.db", tmp_path)
    elsewhere = {"HOLDFAST_DATABASE_URL": "sqlite:///environment.db", "HOLDFAST_APP": "tasks:app"}
    assert "shop.db" in holdfast(tmp_path, "config", "show", **elsewhere).stdout
    said = holdfast(tmp_path, "config", "show", "--database", "sqlite:///typed.db", **elsewhere).stdout
    assert "typed.db" in said
    assert "shop.db" not in said


def test_a_worker_finds_its_app_in_the_environment_and_says_so_where_there_is_none(tmp_path: Path) -> None:
    refused = holdfast(tmp_path, "worker")
    assert refused.returncode != 0
    assert "--app MODULE:APP" in refused.stderr
    assert "HOLDFAST_APP" in refused.stderr
    broken = holdfast(tmp_path, "worker", HOLDFAST_APP="nowhere:app")
    assert "no module 'nowhere'" in broken.stderr


@pytest.mark.postgres
@pytest.mark.parametrize("form", DRIVERS)
async def test_an_app_accepts_the_database_url_of_an_orm(fresh_postgres_url: str, form: str) -> None:
    app = App(database_url=fresh_postgres_url.replace("postgresql:", f"{form}:", 1))

    @app.job()
    async def ship(order: int) -> None: ...

    async with app:
        job = await ship.enqueue(order=1)
        assert await job.status() == "PENDING"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("postgresql+asyncpg://u:p@h:5/d?ssl=require", "postgresql://u:p@h:5/d?sslmode=require"),
        ("postgresql+asyncpg://h/d?prepared_statement_cache_size=0", "postgresql://h/d"),
        (
            "postgresql+psycopg://h/d?sslmode=require&application_name=a",
            "postgresql://h/d?sslmode=require&application_name=a",
        ),
        ("postgresql+psycopg2:///d?host=/run/postgresql", "postgresql:///d?host=/run/postgresql"),
        ("postgres://u@h/d", "postgresql://u@h/d"),
        ("sqlite+aiosqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:////srv/jobs.db", "sqlite:////srv/jobs.db"),
    ],
)
def test_driver_urls_of_orms_are_normalized(given: str, meant: str) -> None:
    assert Settings(database_url=given).url == meant


@pytest.mark.postgres
async def test_an_app_without_a_schema_says_which_database_and_what_to_type(unmigrated: str, tmp_path: Path) -> None:
    folder = app_on(unmigrated, tmp_path)
    failed = run(folder)
    name = urlsplit(unmigrated).path[1:]
    assert f"/{name} lacks 0001" in failed.stderr
    assert "hush" not in failed.stderr
    assert f"run `holdfast migrate --app {folder}/tasks.py:app`" in failed.stderr

    stale = holdfast(folder, "jobs", "list", "--app", "tasks:app")
    assert f"/{name} lacks 0001" in stale.stderr
    assert "run `holdfast migrate --app tasks:app`" in stale.stderr
    assert holdfast(folder, "migrate", "--app", "tasks:app").returncode == 0
    assert holdfast(folder, "jobs", "list", "--app", "tasks:app").returncode == 0


@pytest.mark.postgres
async def test_the_suggested_migrate_command_depends_on_the_source_of_the_database_url(
    unmigrated: str, tmp_path: Path
) -> None:
    by_variable = holdfast(tmp_path, "jobs", "list", HOLDFAST_DATABASE_URL=unmigrated)
    assert "run `holdfast migrate`" in by_variable.stderr
    typed = holdfast(tmp_path, "jobs", "list", "--database", unmigrated)
    shown = unmigrated.replace("hush", "***")
    assert f"run `holdfast migrate --database '{shown}'`" in typed.stderr


@pytest.mark.postgres
async def test_a_dropped_schema_raises_schema_stale_with_the_database(fresh_postgres_url: str) -> None:
    app = App(database_url=fresh_postgres_url)

    @app.job()
    async def ship(order: int) -> None: ...

    async with app:
        connection = await asyncpg.connect(fresh_postgres_url)
        await connection.execute("ALTER TABLE holdfast_jobs RENAME TO lost")
        await connection.close()
        with pytest.raises(SchemaStale) as stale:
            await ship.enqueue(order=1)
    assert f"{without_password(fresh_postgres_url)} has no Holdfast schema" in str(stale.value)
    assert "run `holdfast migrate" in str(stale.value)


def test_the_suggested_migrate_command_omits_what_the_settings_contain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://h/d")
    assert migrate_command(load()) == "holdfast migrate"
    assert migrate_command(Settings(database_url="postgresql+asyncpg://h/d"), "tasks:app") == "holdfast migrate"
    other = Settings(database_url="postgresql://h/other")
    assert migrate_command(other, "tasks:app") == "holdfast migrate --app tasks:app"
    assert migrate_command(other) == "holdfast migrate --database postgresql://h/other"
    monkeypatch.setenv("HOLDFAST_APP", "tasks:app")
    assert migrate_command(other, "tasks:app") == "holdfast migrate"
