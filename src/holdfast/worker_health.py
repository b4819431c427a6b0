"""A worker's own `/livez` and `/readyz`, for whoever keeps its process running."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import NotFound, StoreUnavailable
from holdfast.server.endpoint import send_reply
from holdfast.server.problems import problem
from holdfast.server.route import Reply
from holdfast.server.serving import address, answering, listen
from holdfast.wire import Alive
from holdfast.worker.board import Board
from holdfast.worker.runtime import WAIT_SECONDS

HOST = "0.0.0.0"  # noqa: S104  (whoever asks is on another machine, or in another container; no secret is told)
POLLS_MISSED_MAX = 3

log = logging.getLogger("holdfast.worker")


class WorkerHealth:
    """It reads what the worker writes down for its keeper, and asks nobody."""

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board, self._clock = board, clock
        self._requests = count(1)

    @contextlib.asynccontextmanager
    async def told_at(self, port: int, ports: int) -> AsyncIterator[str]:
        """On the first of these ports that is free: each process of a worker takes one."""
        listening = listen(HOST, port, ports)
        async with answering(self, listening, request_id=self._request_id):
            log.info("health: %s/readyz", address(listening))
            yield address(listening)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request_id = self._request_id()
        await send_reply(self._answer(scope["path"], request_id), send, request_id)

    def _answer(self, path: str, request_id: str) -> Reply:
        if path == "/livez":
            return Reply(200, Alive("ok"))
        if path != "/readyz":
            error = NotFound("a worker answers /livez and /readyz", code="route_not_found")
            return problem(error, request_id)
        if (complaint := self.complaint()) is not None:
            return problem(StoreUnavailable(complaint, code="not_ready"), request_id)
        return Reply(200, Alive("ok"))

    def complaint(self) -> str | None:
        """Why this worker takes no jobs, if it takes none."""
        header = self._board.header()
        if header.stopping:
            return "this worker is about to stop"
        silent = self._clock.monotonic() - header.polled
        if silent > POLLS_MISSED_MAX * WAIT_SECONDS:
            return f"it has not been able to look for jobs for {silent:.0f} s"
        return None

    def _request_id(self) -> str:
        return f"worker-{next(self._requests):x}"
