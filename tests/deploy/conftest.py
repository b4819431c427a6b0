"""A server that the tests of this folder ask."""

from collections.abc import AsyncIterator

import pytest

from tests.server.steps import Served, serving


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    """On each store in turn."""
    async with serving(store_url) as served:
        yield served
