"""The recipe for Alembic, as its page has it, in a project that `alembic init` made."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.migrate import missing
from tests.cli.processes import environment
from tests.conftest import administer, with_database
from tests.docs.pages import blocks


@pytest.mark.slow
@pytest.mark.parametrize("template", ["generic", "async"])
async def test_a_revision_migrates_the_database(postgres_server_url: str, tmp_path: Path, template: str) -> None:
    name = f"hf_alembic_{template}_{abs(hash(str(tmp_path)))}"
    await administer(postgres_server_url, f"CREATE DATABASE {name}")
    url = with_database(postgres_server_url, name)
    driver = "asyncpg" if template == "async" else "psycopg"
    project(tmp_path, template, url.replace("postgresql:", f"postgresql+{driver}:"))
    alembic(tmp_path, "upgrade", "head")
    assert await missing(url) == []
    alembic(tmp_path, "upgrade", "head")
    await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


def project(folder: Path, template: str, url: str) -> None:
    alembic(folder, "init", "--template", template, "migrations")
    settings = folder / "alembic.ini"
    settings.write_text(settings.read_text().replace("driver://user:pass@localhost/dbname", url))
    [revision] = blocks("docs/guides/frameworks/alembic.md", "py")
    (folder / "migrations" / "versions" / "0001_holdfast.py").write_text(revision.text)


def alembic(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "alembic", *words]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
