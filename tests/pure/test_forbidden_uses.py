"""Time, randomness, the environment and SQL are each used in one place only, so that tests can replace them."""

from pathlib import Path

import pytest

import holdfast
from tests.pure.forbidden_uses import ENVIRONMENT, TIME_AND_CHANCE, forbidden, sql_in

ROOT = Path(next(iter(holdfast.__path__)))
MODULES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


def test_only_the_clock_and_ids_modules_use_time_and_randomness() -> None:
    found = {
        name: uses
        for name, source in MODULES.items()
        if name not in ("clock.py", "ids.py") and (uses := forbidden(source, TIME_AND_CHANCE))
    }
    assert found == {}
    assert forbidden(MODULES["clock.py"], TIME_AND_CHANCE)
    assert forbidden(MODULES["ids.py"], TIME_AND_CHANCE)


def test_only_the_settings_read_the_environment() -> None:
    found = {
        name: uses
        for name, source in MODULES.items()
        if name != "settings.py" and (uses := forbidden(source, ENVIRONMENT))
    }
    assert found == {}


def test_only_the_store_contains_sql() -> None:
    """A workload's own tables aside."""
    found = {
        name: texts
        for name, source in MODULES.items()
        if not name.startswith(("store/", "workloads/")) and (texts := sql_in(source))
    }
    assert found == {}
    assert sql_in(MODULES["store/migrate.py"])


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime\ndatetime.now()",
        "import datetime as d\nd.datetime.utcnow()",
        "import time\ntime.time()",
        "from time import sleep",
        "import asyncio as a\na.sleep(1)",
        "import random",
        "from random import choice",
        "from uuid import uuid4 as fresh",
        "import uuid\nuuid.uuid4()",
        "import secrets as s\ns.token_hex()",
        "import os.path\nos.urandom(8)",
        "def f():\n    import random",
    ],
)
def test_uses_of_time_and_randomness_are_found_under_any_import_name(source: str) -> None:
    assert forbidden(source, TIME_AND_CHANCE)


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['A']", "from os import getenv", "from os import environ as e"]
)
def test_uses_of_the_environment_are_found_under_any_import_name(source: str) -> None:
    assert forbidden(source, ENVIRONMENT)


@pytest.mark.parametrize(
    "source",
    [
        "x = 'SELECT id FROM holdfast_jobs'",
        "x = f'UPDATE holdfast_jobs SET a = {b}'",
        "run('BEGIN')",
        "x = '''\n  DELETE FROM holdfast_jobs'''",
    ],
)
def test_sql_is_found_in_any_string(source: str) -> None:
    assert sql_in(source)


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import UTC\nimport time\ntime.monotonic()",
        "from holdfast import clock\nclock.now()",
        "x = 'select a queue from the list'",
        "'Update the job set'",
    ],
)
def test_allowed_code_is_not_reported(source: str) -> None:
    assert not forbidden(source, TIME_AND_CHANCE + ENVIRONMENT)
    assert not sql_in(source)
