"""Background loops of a server keep running after errors."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from holdfast import App, background
from holdfast.assembly.worker import WorkerOptions, work
from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.extend import Extension
from holdfast.ids import Ids
from holdfast.server.live.long_poll import LongPoll
from holdfast.store.migrate import migrate
from tests.logs import logged
from tests.server.steps import Served, serving

PATIENCE_SECONDS = 60.0
EVERYWHERE = {"maintenance", "extension maintenance"}
OF_SERVERS = EVERYWHERE | {
    *("API key usage", "event feed", "long poll", "health monitor", "webhook deliverer", "queue metrics"),
    *("worker events", "extension health"),
}
OF_WORKERS = EVERYWHERE | {"crash detector", "broker listener", "heartbeat process"}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(background, "PAUSE_MAX_SECONDS", 0.05)
    monkeypatch.setattr(background, "STEADY_SECONDS", 0.5)
    monkeypatch.setattr(background, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def failed_once(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every background loop fails the first time that it runs. How often each was started."""
    start, starts = Loops.start, Counter[str]()

    def failing(self: Loops, name: str, loop: background.Loop) -> asyncio.Task[None]:
        async def first_fails() -> None:
            starts[name] += 1
            if starts[name] == 1:
                raise ValueError("unforeseen")
            await loop()

        return start(self, name, first_fails)

    monkeypatch.setattr(Loops, "start", failing)
    return starts


def listening(url: str) -> set[str]:
    return {"LISTEN connection"} if url.startswith("postgres") else set()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


async def test_a_crashed_loop_is_restarted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
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
    assert logged(caplog) == [
        "background loop failed, restarting: the loop: unforeseen",
        "background loop recovered: the loop",
    ]


async def test_a_loop_without_work_may_return(caplog: pytest.LogCaptureFixture) -> None:
    async def loop() -> None:
        ended.set()

    ended = asyncio.Event()
    async with Loops(Clock(), Ids()).running({"the loop": loop}):
        await ended.wait()
    assert logged(caplog) == []


async def test_a_restarted_loop_without_work_may_return() -> None:
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


async def test_a_server_with_a_crashing_loop_is_not_ready_until_the_loop_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    async def run(self: LongPoll) -> None:
        if broken:
            raise ValueError("unforeseen")
        await asyncio.Event().wait()

    async def is_ready() -> bool:
        return (await served.http.get("/readyz")).status_code == 200

    async def names_the_loop() -> bool:
        answer = await served.http.get("/readyz")
        return answer.status_code == 503 and "long poll" in answer.json()["detail"]

    monkeypatch.setattr(LongPoll, "run", run)
    loops = served.server.loops
    async with loops.running({"long poll": served.server.long_poll.run}):
        await until(names_the_loop)
        answer = await served.http.get("/readyz")
        assert answer.json()["code"] == "not_ready"
        assert "unforeseen" not in answer.text  # what went wrong is for the log: anyone may ask
        assert (await served.http.get("/health")).json()["failingLoops"] == ["long poll"]
        broken = False
        await until(is_ready)


async def test_every_loop_of_a_server_is_restarted_when_it_fails(store_url: str, failed_once: Counter[str]) -> None:
    app = App()
    app.include(Extension("toy"))
    expected = OF_SERVERS | listening(store_url)

    async def all_restarted() -> bool:
        return {name for name, starts in failed_once.items() if starts > 1} == expected

    async def is_ready() -> bool:
        return (await served.http.get("/readyz")).status_code == 200

    async with serving(store_url, app=app) as served:
        await until(all_restarted)
        await until(is_ready)


async def test_every_loop_of_a_worker_is_restarted_when_it_fails(store_url: str, failed_once: Counter[str]) -> None:
    app, stop = App(database_url=store_url), asyncio.Event()
    app.include(Extension("toy"))
    expected = OF_WORKERS | listening(store_url)

    async def all_restarted() -> bool:
        return {name for name, starts in failed_once.items() if starts > 1} == expected

    @app.job()
    async def passes() -> str:
        return "done"

    await migrate(store_url, app.extensions.values())
    working = asyncio.create_task(work(app, WorkerOptions(), stop=stop, on_ready=lambda _: None))
    await until(all_restarted)
    assert await (await passes.enqueue()).result(PATIENCE_SECONDS) == "done"
    stop.set()
    await working
    await app.close()
