"""`/metrics`, `/livez` and `/readyz` of `holdfast worker`: one port for all its processes, in their parent."""

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
from holdfast.server.http.endpoint import send_reply
from holdfast.server.http.problems import problem
from holdfast.server.http.route import Reply
from holdfast.server.http.server import address, answering, listen
from holdfast.wire import Alive
from holdfast.worker.config import WAIT_SECONDS
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.processes.supervisor_protocol import ProcessStatus

HOST = "0.0.0.0"  # noqa: S104  (whoever asks is on another machine, or in another container; no secret is told)
POLLS_MISSED_MAX = 3
START_SECONDS, START_LOOK_SECONDS = 5.0, 0.05  # less than a scrape may take, for most who scrape

log = logging.getLogger("holdfast.worker")


class WorkerHealth:
    """It knows what the processes say when they are asked, and what those that have ended had said."""

    def __init__(self, supervisor: Supervisor, clock: Clock | None = None) -> None:
        self._supervisor, self._clock = supervisor, clock or Clock()
        self._past = WorkerMetrics()
        self._heard = False  # anything, from any process
        self._requests = count(1)
        self._families: dict[str, MetricDeclaration] = {}  # those that extensions of the app declare
        supervisor.on_end = self._ended

    @contextlib.asynccontextmanager
    async def told_at(self, port: int) -> AsyncIterator[str]:
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
                if (complaint := self._complaint(await self._asked())) is not None:
                    return problem(StoreUnavailable(complaint, code="not_ready"), request_id)
                return Reply(200, Alive("ok"))
            case "/metrics":
                return Reply(200, self._text(await self._first_words()), content_type=TEXT.encode())
        return problem(NotFound("a worker answers /metrics, /livez and /readyz", code="route_not_found"), request_id)

    async def _asked(self) -> list[ProcessStatus | None]:
        """What each process says, or said last. One that ends while we ask is among those that have ended."""
        await asyncio.gather(*(line.ask() for line in self._supervisor.lines if line.begun))
        return [line.told for line in self._supervisor.lines if line.begun]

    async def _first_words(self) -> list[ProcessStatus | None]:
        """Which job types there are, only the processes know: whoever asks before the first is ready waits a while."""
        told = await self._asked()
        until = self._clock.monotonic() + START_SECONDS
        while not (self._heard or any(told) or self._supervisor.stopping) and self._clock.monotonic() < until:
            await self._clock.sleep(START_LOOK_SECONDS)
            told = await self._asked()
        self._heard = self._heard or any(told)
        return told

    def _text(self, told: list[ProcessStatus | None]) -> bytes:
        """Names are met in an order that stays: which of them are counted together must not depend on who ends."""
        figures = [self._figures(each) for each in told if each is not None]
        for each in figures:
            self._past.show_labels(each)
        total = WorkerMetrics()
        total.adopt(family.instrument() for family in self._families.values())
        total.add_up([self._past.snapshot(), *figures])
        return total.text()

    def _ended(self, told: ProcessStatus) -> None:
        self._past.keep_counters(self._figures(told))

    def _figures(self, told: ProcessStatus) -> Snapshot:
        """Only its processes import the app, so each says which families its extensions declare. The first to say so
        is believed."""
        for family in told.families:
            if self._families.setdefault(family.name, family) is family:
                self._past.adopt([family.instrument()])
        return msgspec.json.decode(told.figures, type=Snapshot)

    def _complaint(self, told: list[ProcessStatus | None]) -> str | None:
        """Why not all of this worker takes jobs, if not all of it does."""
        if self._supervisor.stopping:
            return "this worker is about to stop"
        if len(told) < self._supervisor.processes:
            return f"{len(told)} of {self._supervisor.processes} processes can take jobs"
        for each in told:
            if each is None:
                return "a process has never said how it is"
            if each.stopping:
                return "a process is about to stop"
            silent = self._clock.monotonic() - each.polled
            if silent > POLLS_MISSED_MAX * WAIT_SECONDS:
                return f"a process has not been able to look for jobs for {silent:.0f} s"
            if each.complaint is not None:
                return each.complaint
        return None

    def _request_id(self) -> str:
        return f"worker-{next(self._requests):x}"
