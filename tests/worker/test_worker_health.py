"""How the parent aggregates the metrics of its worker processes, also when they end during a scrape."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast.assembly.worker_health import WorkerHealth
from holdfast.observe.instruments import LABELS_MAX
from holdfast.worker.metrics import WorkerCounters
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.processes.supervisor_protocol import READY, STATUS, ProcessStatus, SupervisorLink
from tests.worker.in_process import until
from tests.worker.test_metrics import Page


class FakeWorkerProcess:
    """A worker process as its parent sees it; the test holds the other end of the connection."""

    def __init__(self, supervisor: Supervisor, line: SupervisorLink, end: socket.socket) -> None:
        self._supervisor, self._line, self._end = supervisor, line, end
        self.figures = WorkerCounters(["a"])
        self._listening = asyncio.create_task(line.listen())

    async def begin(self) -> None:
        self._end.send(READY)
        await until(lambda: self._line.begun)

    async def asked(self) -> None:
        """Wait until the parent requests its status."""
        assert await asyncio.get_running_loop().sock_recv(self._end, 64) == STATUS

    def answer(self) -> None:
        figures = msgspec.Raw(msgspec.json.encode(self.figures.registry.snapshot()))
        self._end.send(msgspec.json.encode(ProcessStatus(0, False, figures)) + b"\n")

    def ends(self) -> None:
        """As in `Supervisor._run_one`."""
        self._supervisor.lines.discard(self._line)
        if self._supervisor.on_end is not None and self._line.status is not None:
            self._supervisor.on_end(self._line.status)

    async def close(self) -> None:
        self._listening.cancel()
        self._line.close()
        self._end.close()


Start = Callable[[], Awaitable[FakeWorkerProcess]]


class HealthEndpoint:
    def __init__(self, health: WorkerHealth, start: Start) -> None:
        self.start, self._health = start, health

    async def told(self) -> Page:
        return Page((await self.reply("/metrics"))[1].decode())

    async def reply(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._health({"type": "http", "method": method, "path": path}, None, send)
        return sent[0]["status"], sent[1]["body"]


@pytest.fixture
async def parent() -> AsyncIterator[HealthEndpoint]:
    supervisor = Supervisor([], 2, grace_seconds=1)
    async with contextlib.AsyncExitStack() as stack:

        async def start() -> FakeWorkerProcess:
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            line = await SupervisorLink.open(ours)
            process = FakeWorkerProcess(supervisor, line, theirs)
            stack.push_async_callback(process.close)
            supervisor.lines.add(line)
            await process.begin()
            return process

        yield HealthEndpoint(WorkerHealth(supervisor), start)


async def test_a_scrape_before_the_first_process_is_ready_waits_for_its_job_types(parent: HealthEndpoint) -> None:
    """R000-70: 0 for each type that is declared, at once."""
    reading = asyncio.create_task(parent.told())
    await asyncio.sleep(0)
    process = await parent.start()
    await process.asked()
    process.answer()
    assert (await reading).value("job_active_count", job_type="a") == 0


async def test_a_scrape_does_not_wait_forever_for_a_process_that_does_not_start(
    parent: HealthEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.assembly.worker_health.START_SECONDS", 0.0)
    assert "job_active_count" in (await parent.told()).families


async def test_a_process_that_ends_during_a_scrape_is_counted_once(parent: HealthEndpoint) -> None:
    """Counted twice now and once the next time, its counters would decrease."""
    first, second = await parent.start(), await parent.start()
    first.figures._runs(0.1, "a", "succeeded", "default")
    reading = asyncio.create_task(parent.told())
    await first.asked()
    first.answer()
    await second.asked()
    await until(lambda: first._line.status)
    first.ends()
    second.answer()
    page = await reading
    assert page.value("job_processed_total", job_type="a", status="succeeded") == 1


async def test_error_codes_keep_their_labels_whichever_process_ends(parent: HealthEndpoint) -> None:
    """Codes reported by name keep their names, and `other` only grows."""
    first, second = await parent.start(), await parent.start()
    for process, codes in ((first, range(150)), (second, range(100, 250))):
        for code in codes:
            process.figures.registry.failures.add(2, f"E_{code}")

    async def told(*processes: FakeWorkerProcess) -> Page:
        reading = asyncio.create_task(parent.told())
        for process in processes:
            await process.asked()
            process.answer()
        return await reading

    before = await told(first, second)
    second.ends()
    middle = await told(first)
    first.ends()
    after = await told()
    for old, new in ((before, middle), (middle, after)):
        assert {name for name, value in old.counts.items() if new.counts.get(name, -1) < value} == set()
    codes = [each for each in after.families["job_failures_total"].samples if each.name == "job_failures_total"]
    assert len(codes) == LABELS_MAX + 1
    assert sum(each.value for each in codes) == 600


async def test_methods_other_than_get_and_head_are_rejected(parent: HealthEndpoint) -> None:
    assert (await parent.reply("/metrics", "POST"))[0] == 405
    assert (await parent.reply("/livez", "HEAD"))[0] == 200
