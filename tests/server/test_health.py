"""Health: what a server and a worker say of themselves, whatever the database does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from holdfast.assembly.worker_health import POLLS_MISSED_MAX, WorkerHealth
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.reads.health import COUNTED_MAX, SystemHealth
from holdfast.errors import StoreUnavailable
from holdfast.model import NewJob
from holdfast.server import health_monitor
from holdfast.server.health_monitor import HealthMonitor
from holdfast.worker.config import WAIT_SECONDS
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.processes.supervisor_protocol import STOP, ProcessStatus
from tests.server.steps import Served, serving


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(600):
        if await condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come true")


class Time(Clock):
    """What passes when a test says so."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
async def quick(store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(health_monitor, "EVERY_SECONDS", 0.05)
    async with serving(store_url) as served:
        yield served


# -- the server -------------------------------------------------------------------------------------------------


async def test_health_has_the_specified_fields(quick: Served) -> None:
    """R003-133, R003-134: database, active workers, pending jobs; storage and processing."""
    worker = (await quick.engine.workers.register(name="w")).id
    await quick.engine.create_many([NewJob(type="a") for _ in range(3)] + [NewJob(type="a", delay_seconds=600)])
    await quick.engine.claim(worker)

    async def seen() -> bool:
        answer = await quick.http.get("/health")
        return answer.json().get("jobs") == {"waiting": 2, "later": 1, "running": 1, "died": 0}

    await until(seen)
    for path in ("/health", "/api/health"):
        answer = await quick.http.get(path)
        assert answer.status_code == 200
        said = answer.json()
        assert (said["status"], said["database"], said["activeWorkers"], said["pendingJobs"]) == ("ok", "ok", 1, 3)
        assert 0 < said["storage"]["freeBytes"] <= said["storage"]["totalBytes"]


async def test_a_server_is_alive_and_soon_ready(quick: Served) -> None:
    assert (await quick.http.get("/livez")).json() == {"status": "ok"}

    async def ready() -> bool:
        return (await quick.http.get("/readyz")).status_code == 200

    await until(ready)


async def test_a_server_without_its_database_is_not_ready_at_once(
    quick: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/readyz and /health turn, /livez does not, and none of them waits for the database."""
    monkeypatch.setattr(health_monitor, "STALE_SECONDS", 0.3)
    asked = asyncio.Event()

    async def gone() -> SystemHealth:
        asked.set()
        raise StoreUnavailable("nobody there")

    monkeypatch.setattr(quick.engine.reads, "health", gone)
    await asked.wait()

    async def refused() -> bool:
        return (await quick.http.get("/readyz")).status_code == 503

    await until(refused)
    answer = await quick.http.get("/readyz")
    assert answer.json()["code"] == "not_ready"
    assert "no response from the database" in answer.json()["detail"]
    assert answer.headers["retry-after"]
    health = await quick.http.get("/health")
    assert (health.status_code, health.json()["status"], health.json()["database"]) == (503, "down", "down")
    assert (await quick.http.get("/livez")).status_code == 200


async def test_a_server_is_not_ready_while_the_schema_is_old(quick: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def old() -> SystemHealth:
        return SystemHealth(quick.server.clock.now(), False, 0, 0, 0, 0, 0, 0)

    monkeypatch.setattr(quick.engine.reads, "health", old)

    async def refused() -> bool:
        answer = await quick.http.get("/readyz")
        return answer.status_code == 503 and "holdfast migrate" in answer.json()["detail"]

    await until(refused)


async def test_old_health_data_is_not_reported(engine: Engine, tmp_path: Path) -> None:
    clock = Time()
    beating = HealthMonitor(engine, clock, tmp_path / "not" / "there")
    assert beating.complaint() is not None, "nothing was heard yet"
    await beating.beat()
    assert beating.complaint() is None
    assert beating.storage is not None, "of the file system where the folder would be"
    clock.seconds = health_monitor.STALE_SECONDS + 0.1
    assert not beating.alive
    assert beating.complaint() is not None


# -- what it costs ----------------------------------------------------------------------------------------------


async def test_health_counts_jobs_by_state(engine: Engine, worker: str) -> None:
    assert (await engine.reads.health()).current
    await engine.create_many([NewJob(type="a", lifecycle="orchestration")], accept=False)
    ids = [job.id for job in await engine.create_many([NewJob(type="a") for _ in range(4)])]
    await engine.create(NewJob(type="a", delay_seconds=60))
    [lease] = await engine.claim(worker, limit=1)
    await engine.fail(worker, lease.id, lease.token, "E", permanent=True)
    [again] = await engine.claim(worker, limit=1)
    await engine.cancel(next(job for job in ids if job not in (lease.id, again.id)))
    seen = await engine.reads.health()
    assert (seen.created, seen.waiting, seen.later, seen.running, seen.died) == (1, 1, 1, 1, 1)
    assert (seen.workers, seen.pending) == (1, 3)


async def test_dead_jobs_of_the_last_hour_are_counted(engine: Engine, worker: str, clock: Any) -> None:
    await engine.create(NewJob(type="a", lifecycle="generation"))
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "E", permanent=True)
    assert (await engine.reads.health()).died == 1
    clock.advance(3601)
    assert (await engine.reads.health()).died == 0
    await engine.create(NewJob(type="a", lifecycle="generation"))
    [lease] = await engine.claim(worker)
    await engine.reject(worker, lease.id, lease.token, "E", "no")
    assert (await engine.reads.health()).died == 0, "a verdict is no death"


async def test_disabled_and_silent_workers_are_not_active(engine: Engine, worker: str, clock: Any) -> None:
    await engine.workers.disable(worker)
    assert (await engine.reads.health()).workers == 0
    await engine.workers.enable(worker)
    await engine.heartbeat(worker, [])
    clock.advance(100_000)
    await engine.maintenance.mark_silent_workers()
    assert (await engine.reads.health()).workers == 0


async def test_nothing_is_counted_beyond_the_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert COUNTED_MAX == 10_000, "as docs and `wire.JobCounts` say"
    monkeypatch.setattr("holdfast.engine.reads.health.COUNTED_MAX", 3)
    await engine.create_many([NewJob(type="a") for _ in range(5)] + [NewJob(type="a", delay_seconds=9)] * 5)
    seen = await engine.reads.health()
    assert (seen.waiting, seen.later) == (3, 3)


# -- a worker ---------------------------------------------------------------------------------------------------


class Said:
    """A line to a process that says this of itself."""

    def __init__(self, told: ProcessStatus | None, *, begun: bool = True) -> None:
        self.status, self.begun = told, begun

    async def ask(self) -> ProcessStatus | None:
        return self.status

    def say(self, word: bytes) -> None:
        assert word == STOP


async def test_a_worker_is_ready_while_all_its_processes_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.assembly.worker_health.HOST", "127.0.0.1")
    clock, supervisor = Time(), Supervisor(["holdfast"], 2, grace_seconds=1)
    well, slow = ProcessStatus(100.0, False, msgspec.Raw(b"{}")), POLLS_MISSED_MAX * WAIT_SECONDS + 1
    async with WorkerHealth(supervisor, clock).serving(0) as url, httpx2.AsyncClient() as http:

        async def complaint(*processes: Said) -> str | None:
            supervisor.lines = set(processes)  # type: ignore[arg-type]
            answer = await http.get(f"{url}/readyz")
            assert (answer.status_code == 200) == (answer.json() == {"status": "ok"})
            return answer.json().get("detail")  # type: ignore[no-any-return]

        clock.seconds = 100.0
        assert await complaint(Said(well), Said(well)) is None
        assert await complaint(Said(well)) == "1 of 2 processes can take jobs"
        assert await complaint(Said(well), Said(None, begun=False)) == "1 of 2 processes can take jobs"
        assert await complaint(Said(well), Said(None)) == "a process has never reported its status"
        stopping = Said(msgspec.structs.replace(well, stopping=True))
        assert await complaint(Said(well), stopping) == "a process is shutting down"
        clock.seconds += slow
        assert await complaint(Said(well), Said(well)) == "a process has not been able to claim for 16 s"
        supervisor.stop()
        assert await complaint(Said(well), Said(well)) == "this worker is shutting down"
        assert (await http.get(f"{url}/livez")).json() == {"status": "ok"}
