"""The state of one server process that its routes share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from holdfast.background import Loops
from holdfast.batching import Batcher, SplitBatcher
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch
from holdfast.engine import Created, Engine, Retention
from holdfast.engine.cancel import Canceling
from holdfast.engine.insert import CheckedJob
from holdfast.engine.reads.extension_checks import Probe
from holdfast.extension_settings import ShownSetting
from holdfast.ids import Ids
from holdfast.model.summary import JobSummary
from holdfast.observe.attempt_metrics import AttemptMetrics
from holdfast.observe.server_metrics import ServerMetrics
from holdfast.server.api.cursors import Cursors
from holdfast.server.api.metrics import QueueMetrics
from holdfast.server.api.report_batching import ReportBatching
from holdfast.server.auth.authenticator import Authenticator
from holdfast.server.extensions.health import ExtensionHealth
from holdfast.server.health_monitor import HealthMonitor
from holdfast.server.http.route import Route
from holdfast.server.live.claim_scopes import ClaimScopes
from holdfast.server.live.feed import EventFeed
from holdfast.server.live.long_poll import LongPoll
from holdfast.server.live.redis import RedisServices
from holdfast.server.policy_cache import PolicyCache
from holdfast.server.store_errors import StoreErrorLog
from holdfast.settings import Settings
from holdfast.webhooks.deliverer import WebhookDeliverer

if TYPE_CHECKING:
    from holdfast.observe.traces import Traces
    from holdfast.server.extensions.routes import Mount


@dataclass
class ServerState:
    """Per-process state only: any number of servers may share one database."""

    engine: Engine
    clock: Clock
    ids: Ids
    settings: Settings
    auth: Authenticator
    creates: SplitBatcher[CheckedJob, Created]
    summaries: Batcher[tuple[str, str], JobSummary]  # of (job, tenant)
    cursors: Cursors
    feed: EventFeed
    long_poll: LongPoll
    health: HealthMonitor
    deliverer: WebhookDeliverer
    loops: Loops = field(kw_only=True)
    retention: Retention = field(default_factory=Retention)
    traces: Traces | None = None
    redis: RedisServices | None = None
    dispatch: Dispatch | None = None  # None: no broker, hints go through the database
    extension_routes: Sequence[Route] = ()
    mounts: Sequence[Mount] = ()
    job_scopes: Mapping[str, str] = field(default_factory=dict)  # that creating a job of a type needs
    caller_fields: Mapping[str, str] = field(default_factory=dict)  # by job type: where a payload names the caller
    about_scopes: Mapping[str, str] = field(default_factory=dict)  # descriptions of extension scopes
    routes: tuple[Route, ...] = ()  # set by `HttpApp`
    extension_scopes: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by extension
    extension_settings: Callable[[], list[ShownSetting]] = list
    health_fields: Sequence[Probe] = ()
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    worker_metrics: Callable[[], Awaitable[bytes]] | None = None  # of a worker in the same process
    stopping: bool = False
    streams: Counter[str] = field(default_factory=Counter)  # open streams by caller
    _waiting: set[asyncio.Event] = field(default_factory=set)
    _requests: count[int] = field(default_factory=count)
    _prefix: str = ""
    pages: dict[str, bytes] = field(default_factory=dict)  # rendered once from the routes
    secrets: dict[str, bytes] = field(default_factory=dict)  # of extensions, as read from the database

    def __post_init__(self) -> None:
        self.extension_health = ExtensionHealth(self.engine, self.clock, self.health_fields)
        self.claim_scopes = ClaimScopes(self.engine, self.clock)
        self.store_errors = StoreErrorLog(self.clock)
        self.policies, self.report_batching = PolicyCache(self.engine), ReportBatching(self.engine)
        self.queue_metrics = QueueMetrics(self.engine, self.clock, self.retention)
        self.engine.store.on_query = self.metrics.queries
        self.deliverer.on_sent = self.metrics.sent
        self.engine.ctx.timing = AttemptMetrics(self.metrics.attempt_seconds)
        self._prefix = f"{self.ids.bits(48):012x}"

    def request_id(self) -> str:
        return f"{self._prefix}-{next(self._requests):x}"

    async def cancel(self, job_id: str, tenant: str, reason: str = "canceled") -> Canceling:
        canceled = await self.engine.cancel(job_id, reason=reason, tenant=tenant)
        if self.redis is not None and self.redis.cached is not None:
            await self.redis.cached.refresh(job_id, tenant)
        return canceled

    @contextmanager
    def interruptible(self, disconnected: asyncio.Event) -> Iterator[None]:
        """For a waiting request: a stopping server counts as a disconnected client."""
        if self.stopping:
            disconnected.set()
        self._waiting.add(disconnected)
        try:
            yield
        finally:
            self._waiting.discard(disconnected)

    def stop(self) -> None:
        """End waiting requests; running ones finish."""
        self.stopping = True
        for disconnected in self._waiting:
            disconnected.set()
