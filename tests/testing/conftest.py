"""An app that has no database of its own, and its jobs on a test database."""

from collections.abc import Iterator

import pytest

from holdfast import App
from holdfast.testing import Jobs, jobs_of


@pytest.fixture
def app() -> App:
    return App(database_url="sqlite:////nowhere/real.db")


@pytest.fixture
def jobs(app: App) -> Iterator[Jobs]:
    with jobs_of(app) as jobs:
        yield jobs
