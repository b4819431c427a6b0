"""What a worker logs when the database is unreachable: one warning, and one line when it is back."""

import logging

import pytest

from holdfast.errors import Locked, StoreUnavailable
from holdfast.outage_log import LoopFailures, Outage, outage
from holdfast.sdk.app import App
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from tests.worker.in_process import until, working


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "holdfast.connection" and record.levelno > logging.DEBUG
    ]


async def test_an_outage_logs_one_warning_and_one_line_when_it_ends(app: App, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_component_that_retries_rarely_does_not_keep_an_outage_open(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage()
    for _ in range(3):
        outage.failed("do maintenance", "gone", often=False)
        outage.failed("claim jobs", "gone")
    outage.succeeded("claim jobs")
    outage.succeeded("claim jobs")
    assert [level for level, _ in told(caplog)] == ["WARNING", "INFO"]


@pytest.mark.parametrize("refused", [StoreUnavailable("disk full", code="store_refused"), Locked("held")])
def test_an_error_response_of_the_database_is_not_logged_as_an_outage(
    caplog: pytest.LogCaptureFixture, refused: StoreUnavailable
) -> None:
    """So no other component may log that the database is reachable again."""
    caplog.set_level(logging.INFO)
    failures = LoopFailures("send webhooks", logging.getLogger("holdfast.webhooks"))
    for _ in range(2):
        failures.failed(refused)
    outage.succeeded("look at the database")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("holdfast")] == [
        f"cannot send webhooks, retrying: {refused}"
    ]
