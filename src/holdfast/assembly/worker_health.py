"""`/metrics`, `/livez` and `/readyz` of `holdfast worker`: one port, in the supervisor, for all its processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.errors import Malformed, NotFound, StoreUnavailable
from holdfast.observe.extension_metrics import MetricDeclaration
from holdfast.observe.instruments import Snapshot
from holdfast.observe.worker_metrics import WorkerMetrics
from holdfast.server.api.metrics import TEXT
from holdfast.server.http.problems import problem
from holdfast.server.http.reply import send_reply
from holdfast.server.http.route import Reply
from holdfast.server.http.server import address, answering, listen
from holdfast.wire import Alive
from holdfast.worker.config import WAIT_SECONDS
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.processes.supervisor_protocol import ProcessStatus

HOST = "0.0.0.0"  # noqa: S104  (scraped from another machine or container; exposes no secret)
POLLS_MISSED_MAX = 3
START_SECONDS, START_POLL_SECONDS = 5.0, 0.05  # less than the usual timeout of a scrape

log = logging.getLogger("holdfast.worker")


class WorkerHealth:
    """Adds up the metrics of all processes, those that have ended included."""

    def __init__(self, supervisor: Supervisor, clock: Clock | None = None) -> None:
        self._supervisor, self._clock = supervisor, clock or Clock()
        self._past = WorkerMetrics()
        self._any_status = False  # at least one process has reported
        self._requests = count(1)
        self._families: dict[str, MetricDeclaration] = {}  # metrics that the app's extensions declare
        supervisor.on_end = self._ended

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[str]:
        listening = listen(HOST, port, option="--metrics-port")
        async with answering(self, listening, request_id=self._request_id):
            log.info("metrics: %s/metrics", address(listening))
            yield address(listening)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request_id = self._request_id()
        await send_reply(await self._answer(scope["method"], scope["path"], request_id), send, request_id)

    async def _answer(self, method: str, path: str, request_id: str) -> Reply:
        if method not in ("GET", "HEAD"):
            return problem(Malformed("a worker takes GET and HEAD", code="method_not_allowed"), request_id)
        match path:
            case "/livez":
                return Reply(200, Alive("ok"))
            case "/readyz":
                if (complaint := self._not_ready(await self._statuses())) is not None:
                    return problem(StoreUnavailable(complaint, code="not_ready"), request_id)
                return Reply(200, Alive("ok"))
            case "/metrics":
                return Reply(200, self._text(await self._first_statuses()), content_type=TEXT.encode())
        return problem(NotFound("a worker answers /metrics, /livez and /readyz", code="route_not_found"), request_id)

    async def _statuses(self) -> list[ProcessStatus | None]:
        """The status of each process, or its last one."""
        await asyncio.gather(*(line.ask() for line in self._supervisor.lines if line.begun))
        return [line.status for line in self._supervisor.lines if line.begun]

    async def _first_statuses(self) -> list[ProcessStatus | None]:
        """Only the processes know the job types: a scrape before the first is ready waits a moment."""
        status = await self._statuses()
        until = self._clock.monotonic() + START_SECONDS
        while not (self._any_status or any(status) or self._supervisor.stopping) and self._clock.monotonic() < until:
            await self._clock.sleep(START_POLL_SECONDS)
            status = await self._statuses()
        self._any_status = self._any_status or any(status)
        return status

    def _text(self, status: list[ProcessStatus | None]) -> bytes:
        """Label values are registered in a stable order: which are merged must not depend on which process ends."""
        metrics = [self._metrics(each) for each in status if each is not None]
        for each in metrics:
            self._past.show_labels(each)
        total = WorkerMetrics()
        total.adopt(family.instrument() for family in self._families.values())
        total.add_up([self._past.snapshot(), *metrics])
        return total.text()

    def _ended(self, status: ProcessStatus) -> None:
        self._past.keep_counters(self._metrics(status))

    def _metrics(self, status: ProcessStatus) -> Snapshot:
        """Only the processes import the app: each names the metrics that its extensions declare; the first counts."""
        for family in status.families:
            if self._families.setdefault(family.name, family) is family:
                self._past.adopt([family.instrument()])
        return msgspec.json.decode(status.metrics, type=Snapshot)

    def _not_ready(self, status: list[ProcessStatus | None]) -> str | None:
        """Why some process of this worker cannot take jobs, if one cannot."""
        if self._supervisor.stopping:
            return "this worker is shutting down"
        if len(status) < self._supervisor.processes:
            return f"{len(status)} of {self._supervisor.processes} processes can take jobs"
        for each in status:
            if each is None:
                return "a process has never reported its status"
            if each.stopping:
                return "a process is shutting down"
            silent = self._clock.monotonic() - each.polled
            if silent > POLLS_MISSED_MAX * WAIT_SECONDS:
                return f"a process has not been able to claim for {silent:.0f} s"
            if each.complaint is not None:
                return each.complaint
        return None

    def _request_id(self) -> str:
        return f"worker-{next(self._requests):x}"
