"""A server on each store in turn, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from holdfast import Client
from tests.client.fault_proxy import FaultProxy
from tests.server.conftest import served
from tests.server.steps import Served

__all__ = ["served"]


@pytest.fixture
async def gate(served: Served) -> AsyncIterator[FaultProxy]:
    """In front of the server."""
    async with FaultProxy.to(served.url) as gate:
        yield gate  # type: ignore[misc]


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url) as client:
        yield client
