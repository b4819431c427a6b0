"""A pytest plugin: an app on a database of the test's own, with a clock that the test moves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing.drain import Ran
    from holdfast.testing.jobs import Jobs, jobs_of

__all__ = ["Jobs", "Ran", "holdfast_jobs", "jobs_of"]

_HOME = {"Jobs": "holdfast.testing.jobs", "Ran": "holdfast.testing.drain", "jobs_of": "holdfast.testing.jobs"}


@pytest.fixture
def holdfast_jobs() -> Iterator[Callable[..., Jobs]]:
    """`holdfast_jobs(app)`: until the test ends, the app works on a temporary database. Arguments as of `jobs_of`."""
    from holdfast.testing.jobs import jobs_of

    with contextlib.ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(jobs_of(*args, **kwargs))


def __getattr__(name: str) -> Any:
    """Loaded when asked for: pytest imports this module at every start, whatever it is going to test."""
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
