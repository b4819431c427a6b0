"""Stories that are told of each broker in turn name it as their `mode`."""

from collections.abc import AsyncIterator

import pytest

from tests.dispatch.places import Place, place_of

SERVERS = {"redis": "redis_server", "hybrid": "redis_server", "nats": "nats_server", "sqs": "sqs_server"}


@pytest.fixture
async def place(mode: str, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with place_of(mode, request.getfixturevalue(SERVERS[mode])) as place:
        yield place
