"""The Prometheus routes. Queue statistics are refreshed in the background when they are scraped."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.engine import Engine, Retention
from holdfast.engine.maintenance.prune import Overdue
from holdfast.engine.reads.queue_stats import QueueStats
from holdfast.errors import NotFound, StoreError
from holdfast.server.http.route import HttpRequest, Reply

if TYPE_CHECKING:
    from holdfast.server.state import ServerState

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OVERDUE_EVERY_SECONDS = 30.0
WAIT_SECONDS = 0.5  # for new statistics; then the old ones are returned
CLIENT_CLOSED = 499  # as in nginx: the client closed the connection

log = logging.getLogger(__name__)


class QueueMetrics:
    """Queue statistics from the last query; without scrapes there are no queries."""

    def __init__(self, engine: Engine, clock: Clock, retention: Retention) -> None:
        self._engine, self._clock, self._retention = engine, clock, retention
        self._wanted, self._heard = asyncio.Event(), asyncio.Event()
        self._asking = False
        self._overdue_at = -math.inf
        self.depths = QueueStats()
        self.overdue = Overdue()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._asking = True
            try:
                self.depths = await self._engine.reads.queue_stats()
                await self._count_overdue()
            except StoreError as error:  # the age of the statistics shows it, too
                log.debug("cannot query the queue statistics: %s", error)
            finally:
                self._asking = False
                self._heard.set()

    async def _count_overdue(self) -> None:
        """It changes slowly, so it is counted rarely."""
        now = self._clock.monotonic()
        if now - self._overdue_at >= OVERDUE_EVERY_SECONDS:
            self.overdue, self._overdue_at = await self._engine.maintenance.overdue(self._retention), now

    async def fresh(self) -> QueueStats:
        """New statistics if they arrive soon; only one request at a time waits for the database."""
        if not self._asking:
            self._heard.clear()
            self._wanted.set()
            await self._clock.within(self._heard, WAIT_SECONDS)
        return self.depths

    @property
    def age(self) -> float:
        at = self.depths.counted_at
        return math.inf if at is None else max(0.0, (self._clock.now() - at).total_seconds())


async def scrape(server: ServerState, request: HttpRequest) -> Reply:
    """Fast, also while the database is slow or down."""
    metrics = server.metrics
    metrics.show_depths(await server.queue_metrics.fresh(), server.queue_metrics.age)
    metrics.show_overdue(server.queue_metrics.overdue)
    metrics.show_missing(server.health.missing_extensions)
    metrics.show_failures(server.deliverer.failures)
    metrics.show_engine(server.engine.ctx.reaped, server.engine.ctx.hook_failures)
    metrics.streams.set(server.streams.total())
    if (dispatch := server.dispatch) is not None:
        metrics.show_broker(dispatch.tally, up=dispatch.up, breaker_open=not dispatch.breaker.closed)
    return Reply(200, metrics.text(), content_type=TEXT.encode())


async def scrape_worker(server: ServerState, request: HttpRequest) -> Reply:
    """Of the worker in the same process, which has separate metrics."""
    if server.worker_metrics is None:
        raise NotFound("no worker runs in this process; use `holdfast worker --metrics-port`")
    return Reply(200, await server.worker_metrics(), content_type=TEXT.encode())
