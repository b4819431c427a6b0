"""A server on each store in turn."""

from collections.abc import AsyncIterator

import pytest

from tests.server.steps import Served, serving


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    """A server on an empty database, on loopback, with an admin secret and no keys yet."""
    async with serving(store_url) as served:
        yield served
