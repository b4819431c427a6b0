"""A worker process learns from its heartbeat process with how many others it shares maintenance."""

import asyncio
from typing import Any

import pytest

from holdfast.assembly import worker
from holdfast.assembly.engine import open_engine
from holdfast.assembly.worker import WorkerOptions, work
from holdfast.maintenance.rotation import Rotation
from holdfast.model.reports import Fleet
from holdfast.sdk.app import App
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.store.presence import Presence
from tests.worker.lease_holder import until

pytestmark = pytest.mark.slow


async def test_a_worker_process_learns_the_fleet_size_from_its_heartbeat_process(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance, crash detection, polling beside a broker and the pings of its connection depend on it."""
    heard: list[Fleet] = []
    told: list[int] = []

    class RecordingRotation(Rotation):
        def update(self, fleet: Fleet) -> None:
            super().update(fleet)
            heard.append(fleet)

    class RecordingPresence:
        def __init__(self, presence: Presence) -> None:
            self._presence = presence

        def set_live_processes(self, live: int) -> None:
            told.append(live)
            self._presence.set_live_processes(live)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._presence, name)

    opened = worker.open_presence

    async def open_presence(*given: Any, **more: Any) -> Any:
        return RecordingPresence(await opened(*given, **more))

    monkeypatch.setattr(worker, "Rotation", RecordingRotation)
    monkeypatch.setattr(worker, "open_presence", open_presence)
    await migrate(store_url)
    settings = Settings(database_url=store_url)
    engine = await open_engine(settings)
    others = [(await engine.workers.register()).id for _ in range(5)]
    stop = asyncio.Event()
    app = App(settings=settings)
    working = asyncio.create_task(work(app, WorkerOptions(), stop=stop, on_ready=lambda _: None))
    await until(lambda: bool(heard))
    [mine] = {worker.id for worker in await engine.workers.all()} - set(others)
    assert heard[0] == Fleet(6, sum(other < mine for other in others), busy=False)
    assert told == [6]
    stop.set()
    await working
    await app.close()
    await engine.close()
