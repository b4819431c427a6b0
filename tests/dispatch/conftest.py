"""Stories that are told of each broker in turn name it as their `mode`."""

from collections.abc import AsyncIterator

import pytest

from holdfast.dispatch import sqs
from tests.dispatch.places import Place, place_of

SERVERS = {"redis": "redis_server", "hybrid": "redis_server", "nats": "nats_server", "sqs": "sqs_server"}


@pytest.fixture
def patient_with_sqs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the AWS library takes up to half a second of processor time: on a busy machine, more than a call may."""
    monkeypatch.setattr(sqs, "CALL_SECONDS", 60.0)


@pytest.fixture
async def place(mode: str, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with place_of(mode, request.getfixturevalue(SERVERS[mode])) as place:
        yield place
