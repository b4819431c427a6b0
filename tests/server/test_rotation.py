"""Servers and workers take turns at maintenance."""

import asyncio
from pathlib import Path

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import StoreUnavailable
from holdfast.model.reports import Fleet
from holdfast.server.health_monitor import HealthMonitor
from tests.worker.lease_holder import until


async def test_a_server_takes_the_last_place_in_the_rotation(engine: Engine, tmp_path: Path) -> None:
    heard: list[Fleet] = []
    pulse = HealthMonitor(engine, Clock(), tmp_path, tell=heard.append)
    await pulse.beat()
    for _ in range(2):
        await engine.workers.register()
    await pulse.beat()
    assert heard == [Fleet(1, 0), Fleet(3, 2)]


async def test_a_server_that_knows_no_other_processes_is_alone_in_the_rotation(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K10: nobody is relied upon of whom nothing is known."""

    async def gone() -> None:
        raise StoreUnavailable("gone")

    heard: list[Fleet] = []
    monkeypatch.setattr(engine.reads, "health", gone)
    running = asyncio.create_task(HealthMonitor(engine, Clock(), tmp_path, tell=heard.append).run())
    await until(lambda: bool(heard))
    running.cancel()
    await asyncio.wait([running])
    assert heard[0] == Fleet()
