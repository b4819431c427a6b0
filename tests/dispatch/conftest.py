"""Tests that run with several brokers are parametrized by `mode`."""

from collections.abc import AsyncIterator

import pytest

from holdfast.dispatch import sqs
from tests.dispatch.backends import Backend, open_backend

SERVERS = {"redis": "redis_server", "hybrid": "redis_server", "nats": "nats_server", "sqs": "aws_server"}


@pytest.fixture
def long_sqs_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the AWS library takes up to half a second of CPU time, on a busy machine longer than the call timeout."""
    monkeypatch.setattr(sqs, "CALL_SECONDS", 60.0)


@pytest.fixture
async def backend(mode: str, request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with open_backend(mode, request.getfixturevalue(SERVERS[mode])) as backend:
        yield backend
