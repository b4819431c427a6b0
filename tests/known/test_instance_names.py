"""An HTTP worker may name its instances freely; no such name counts as a presence lock."""

import pytest

from holdfast.clock import MovableClock
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.maintenance.crash_detector import WINDOW_SECONDS, CrashDetector
from holdfast.model import NewJob
from holdfast.store.presence import open_presence
from tests.engine.steps import run
from tests.server.http_worker import hand
from tests.server.steps import serving


class Hours(MovableClock):
    """A clock that advances an hour with each reading."""

    at = 0.0

    def monotonic(self) -> float:
        self.at += 3600
        return self.at


@pytest.mark.parametrize("name", ["shop.live", "web-1-0123456789abcdef.live"])
async def test_a_worker_whose_instance_id_ends_in_live_keeps_its_job(store_url: str, name: str) -> None:
    """`.live` is how our own processes say that they hold a lock, and also the end of many host names."""
    async with serving(store_url) as served:
        me = await hand(served)
        made = await served.engine.create(NewJob(type="resize"))
        await me.claim_one(instanceId=name)
        beside = (await served.engine.workers.register()).id
        await run(served.engine, beside, instance="beside")
        assert await served.engine.polls.instances() == ["beside"]
        presence = await open_presence(store_url)
        watch = CrashDetector(served.engine, presence, Hours(), Ids())
        assert WINDOW_SECONDS < 3600
        assert [await watch.check() for _ in range(3)] == [[], [], []]
        assert (await served.engine.reads.get(made.id)).state is State.RUNNING
        await presence.close()


@pytest.mark.postgres
async def test_an_instance_name_that_only_ends_in_live_is_never_dead(fresh_postgres_url: str) -> None:
    presence = await open_presence(fresh_postgres_url)
    assert await presence.dead(["shop.live", ".live", "a-b-c.live"]) == set()
    await presence.close()
