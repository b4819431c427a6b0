"""A server that only sends knows how its broker is, though it has nothing to send."""

import asyncio
import re

import pytest

from holdfast.clock import Clock
from holdfast.dispatch import probe
from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.broker import BrokerError
from holdfast.dispatch.probe import BrokerProbe
from holdfast.ids import SeededIds
from tests.dispatch.harness import until
from tests.server.steps import serving


class Door:
    """Of a broker: all that is asked of it here is whether it opens."""

    def __init__(self) -> None:
        self.shut = True

    async def open(self) -> None:
        if self.shut:
            raise BrokerError("connection refused")


async def test_the_probe_notices_an_outage_and_its_end_without_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """L6: used again within ten seconds of its return."""
    monkeypatch.setattr(probe, "PAUSE_MAX_SECONDS", 0.15)
    door, breaker = Door(), Breaker(Clock(), SeededIds(5))
    running = asyncio.create_task(BrokerProbe(door, breaker, Clock()).run())  # type: ignore[arg-type]
    await until(lambda: not breaker.closed)
    door.shut = False
    await until(lambda: breaker.closed)
    breaker.failed("a hint could not be sent")
    assert not breaker.closed
    await until(lambda: breaker.closed)
    running.cancel()


@pytest.mark.usefixtures("aws_server")  # for its credentials
async def test_a_server_logs_at_startup_that_sqs_is_unreachable(
    fresh_sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(fresh_sqlite_url, dispatch="sqs", sqs_endpoint_url="http://127.0.0.1:1") as served:
        await until(lambda: served.server.dispatch and not served.server.dispatch.up)
    assert re.search("hints go through the database: SQS (is unreachable|call timed out)", caplog.text)
