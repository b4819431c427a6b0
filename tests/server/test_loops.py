"""What a process does beside its work goes on, whatever it runs into."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from holdfast import background
from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.server.live.long_poll import Room
from tests.logs import logged
from tests.server.steps import Served

PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(background, "PAUSE_MAX_SECONDS", 0.05)
    monkeypatch.setattr(background, "STEADY_SECONDS", 0.5)
    monkeypatch.setattr(background, "PATIENCE_SECONDS", 0.0)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


async def test_a_loop_that_dies_is_started_again_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    runs, loops = 0, Loops(Clock(), Ids())

    async def loop() -> None:
        nonlocal runs
        runs += 1
        if runs < 5:
            raise ValueError("unforeseen")
        await asyncio.Event().wait()

    async def is_well() -> bool:
        return runs == 5 and loops.complaint() is None

    with caplog.at_level(logging.INFO, "holdfast.background"):
        async with loops.running({"the loop": loop}):
            await until(is_well)
    assert logged(caplog) == ["the loop has died and is started again: unforeseen", "the loop runs again"]


async def test_a_loop_that_has_nothing_to_do_may_end(caplog: pytest.LogCaptureFixture) -> None:
    async def loop() -> None:
        ended.set()

    ended = asyncio.Event()
    async with Loops(Clock(), Ids()).running({"the loop": loop}):
        await ended.wait()
    assert logged(caplog) == []


async def test_a_loop_that_has_nothing_more_to_do_after_a_failure_may_end_too() -> None:
    runs, loops = 0, Loops(Clock(), Ids())

    async def loop() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("unforeseen")

    async def is_well() -> bool:
        return runs == 2 and loops.complaint() is None

    async with loops.running({"the loop": loop}):
        await until(is_well)


async def test_a_server_with_a_loop_that_keeps_dying_is_not_ready_until_it_runs_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    async def run(self: Room) -> None:
        if broken:
            raise ValueError("unforeseen")
        await asyncio.Event().wait()

    async def is_ready() -> bool:
        return (await served.http.get("/readyz")).status_code == 200

    async def names_the_loop() -> bool:
        answer = await served.http.get("/readyz")
        return answer.status_code == 503 and "the room of waiting claims" in answer.json()["detail"]

    monkeypatch.setattr(Room, "run", run)
    loops = served.server.loops
    async with loops.running({"the room of waiting claims": served.server.room.run}):
        await until(names_the_loop)
        answer = await served.http.get("/readyz")
        assert answer.json()["code"] == "not_ready"
        assert "unforeseen" not in answer.text  # what went wrong is for the log: anyone may ask
        assert (await served.http.get("/health")).json()["failingLoops"] == ["the room of waiting claims"]
        broken = False
        await until(is_ready)
