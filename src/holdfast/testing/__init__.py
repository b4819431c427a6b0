"""A pytest plugin: runs an app on a temporary database, with a clock that the test moves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.sdk.app import App
    from holdfast.testing.contexts import FakeContext, FakeSyncContext, fake_context
    from holdfast.testing.jobs import Jobs, jobs_of
    from holdfast.testing.run import Ran

__all__ = [
    "FakeContext",
    "FakeSyncContext",
    "Jobs",
    "Ran",
    "fake_context",
    "holdfast_database_url",
    "holdfast_jobs",
    "jobs_of",
]

_HOME = {
    "FakeContext": "holdfast.testing.contexts",
    "FakeSyncContext": "holdfast.testing.contexts",
    "Jobs": "holdfast.testing.jobs",
    "Ran": "holdfast.testing.run",
    "fake_context": "holdfast.testing.contexts",
    "jobs_of": "holdfast.testing.jobs",
}
_URL_HELP = "a PostgreSQL database that each test with `holdfast_jobs` gets a copy of; without it, tests use SQLite"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("holdfast").addoption("--holdfast-database-url", metavar="URL", help=_URL_HELP)
    parser.addini("holdfast_database_url", _URL_HELP, default="")


@pytest.fixture(scope="session")
def holdfast_database_url(pytestconfig: pytest.Config) -> str | None:
    """The database to copy for each test. Override the fixture if the URL is known only at run time."""
    return pytestconfig.getoption("holdfast_database_url") or pytestconfig.getini("holdfast_database_url") or None


@pytest.fixture
def holdfast_jobs(holdfast_database_url: str | None) -> Iterator[Callable[..., Jobs]]:
    """`holdfast_jobs(app)`: until the test ends, the app uses a temporary database. Arguments as in `jobs_of`."""
    from holdfast.testing.jobs import jobs_of

    def of(app: App, **options: Any) -> Jobs:
        return stack.enter_context(jobs_of(app, **{"database_url": holdfast_database_url, **options}))

    with contextlib.ExitStack() as stack:
        yield of


def __getattr__(name: str) -> Any:
    """Lazy: pytest imports this module at every start."""
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
