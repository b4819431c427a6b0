"""A server on each store in turn, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from holdfast import Client
from tests.client.between import Gate
from tests.server.conftest import served
from tests.server.steps import Served

__all__ = ["served"]


@pytest.fixture
async def gate(served: Served) -> AsyncIterator[Gate]:
    """In front of the server."""
    async with Gate.to(served.url) as gate:
        yield gate  # type: ignore[misc]


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url) as client:
        yield client
