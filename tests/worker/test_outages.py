"""What a worker logs while the database is away: that it is, once, and that it is back."""

import logging
from collections.abc import AsyncIterator

import pytest

from holdfast.errors import Locked, StoreUnavailable
from holdfast.outage_log import LoopFailures, Outage, outage
from holdfast.sdk.app import App
from holdfast.settings import Settings
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from tests.worker.in_process import until, working


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(settings=Settings(database_url=store_url))
    yield app
    await app.close()


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "holdfast.connection" and record.levelno > logging.DEBUG
    ]


async def test_an_outage_is_one_warning_and_one_line_when_it_is_over(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job()
    async def fine() -> str:
        return "done"

    caplog.set_level(logging.INFO)
    async with working(app) as at_work:
        at_work.source.broken |= dict.fromkeys(("claim", "complete"), StoreUnavailable("connection refused"))
        job = await fine.enqueue()
        await until(lambda: len([call for call in at_work.source.calls if call[0] == "claim"]) > 4)
        at_work.worker.on_heartbeat(HeartbeatResult(failed="connection refused"))
        assert told(caplog) == [("WARNING", "cannot claim jobs, retrying: connection refused")]
        del at_work.source.broken["claim"]
        await until(lambda: ("complete", 1) in at_work.source.calls)
        assert len(told(caplog)) == 1, "one part can work while others still cannot"
        at_work.source.broken.clear()
        assert await job.result(60) == "done"
        at_work.worker.on_heartbeat(HeartbeatResult(renewed=True))
        await until(lambda: len(told(caplog)) == 2)
    assert [level for level, _ in told(caplog)] == ["WARNING", "INFO"]
    assert told(caplog)[1][1].startswith("the database is reachable again after ")


def test_a_part_that_tries_seldom_does_not_keep_an_outage_open(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage()
    for _ in range(3):
        outage.failed("do maintenance", "gone", often=False)
        outage.failed("claim jobs", "gone")
    outage.succeeded("claim jobs")
    outage.succeeded("claim jobs")
    assert [level for level, _ in told(caplog)] == ["WARNING", "INFO"]


@pytest.mark.parametrize("refused", [StoreUnavailable("disk full", code="store_refused"), Locked("held")])
def test_a_refusal_of_the_database_is_not_told_as_an_outage(
    caplog: pytest.LogCaptureFixture, refused: StoreUnavailable
) -> None:
    """Nothing else that works may then say that the database is reachable again."""
    caplog.set_level(logging.INFO)
    failures = LoopFailures("send webhooks", logging.getLogger("holdfast.webhooks"))
    for _ in range(2):
        failures.failed(refused)
    outage.succeeded("look at the database")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("holdfast")] == [
        f"cannot send webhooks, retrying: {refused}"
    ]
