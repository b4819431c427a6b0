"""All metrics of a server process.

They never share a registry with those of a worker: both have `db_query_duration_seconds`, with different labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from mimetypes import MimeTypes

from prometheus_client.core import Metric
from prometheus_client.process_collector import ProcessCollector

from holdfast.engine.maintenance.prune import Overdue
from holdfast.engine.reads.limit_use import LimitUse
from holdfast.engine.reads.queue_stats import QueueDepth, QueueStats, fullest, most_used
from holdfast.engine.webhooks.failure_counts import FailureCounts
from holdfast.observe.common_metrics import CommonMetrics
from holdfast.observe.instruments import OTHER, Labels
from holdfast.observe.query_metrics import QueryTimes
from holdfast.store.queries import Query

SECONDS = (0.1, 0.3, 0.5, 1, 2, 5, 10)
BYTES = tuple(2**power for power in range(10, 21))  # 1 KiB to 1 MiB, the largest body of a job
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
MEDIA_TYPES = frozenset({"application/gzip", *(kind for known in MimeTypes().types_map for kind in known.values())})
WEBHOOK = "webhook"
REQUESTS_MAX = 5_000  # routes times statuses: clients cannot add to them
QUEUES_MAX = 100  # shown separately; the others are counted as `other`
LIMITS_MAX = 100  # the same
STATES = ("waiting", "paused", "delayed", "retrying", "created", "running")
STATUSES = ("active", "idle", "busy", "offline", "disabled")
OUTCOMES = ("delivered", "retried", "failed")


class ServerMetrics(CommonMetrics):
    def __init__(self) -> None:
        super().__init__()
        self._process = ProcessCollector(registry=None)
        self._add_request_metrics()
        self._add_query_metrics()
        self._add_webhook_metrics()
        self._add_job_metrics()
        self.before.append(self._count_requests)

    def _add_request_metrics(self) -> None:
        labels = ("method", "route", "status_code")
        self.requests = self.histogram(
            "http_request_duration_seconds",
            "Duration of HTTP requests; of an event stream, until its first byte.",
            labels,
            buckets=SECONDS,
        )
        self.requests_total = self.counter("http_requests_total", "HTTP requests.", labels)
        self.requests.most = self.requests_total.most = REQUESTS_MAX
        self.uploads = self.histogram(
            "upload_size_bytes", "Size of job bodies and uploaded files.", ("mime_type",), buckets=BYTES
        )
        self.streams = self.gauge("holdfast_streams", "Open event streams.")

    def _add_query_metrics(self) -> None:
        labels = ("operation", "table")
        took = self.histogram(
            "db_query_duration_seconds", "Duration of the server's database queries.", labels, buckets=SECONDS
        )
        errors = self.counter("db_query_error_total", "Failed database queries.", (*labels, "error_code"))
        self.queries = QueryTimes(self, took, errors, _labels_of)

    def _add_webhook_metrics(self) -> None:
        labels = ("service", "operation")
        self.external = self.histogram(
            "external_duration_seconds", "Duration of calls to external services.", labels, buckets=SECONDS
        )
        self.external_errors = self.counter(
            "external_error_total", "Failed calls to external services.", (*labels, "error_code")
        )
        self.deliveries = self.counter(
            "holdfast_deliveries_total", "Webhook deliveries and alerts sent by this process, by outcome.", ("outcome",)
        )
        for outcome in OUTCOMES:
            self.deliveries.show(outcome)

    def _add_job_metrics(self) -> None:
        self.created = self.counter(
            "holdfast_jobs_created_total", "Jobs created over HTTP in this process.", ("queue",)
        )
        self.failures = self.counter(
            "holdfast_job_failures_total", "Attempts that failed or lost their lease, on all workers."
        )
        self.stale = self.counter(
            "holdfast_stale_jobs_recovered_total",
            "Jobs recovered from workers that crashed or stopped sending heartbeats, on all workers.",
        )
        self.spent = self.counter(
            "holdfast_max_retries_exceeded_total", "Jobs that failed their last attempt, on all workers."
        )
        self.jobs = self.gauge("holdfast_queue_jobs", "Unfinished jobs, by queue and state.", ("queue", "state"))
        self.oldest = self.gauge(
            "holdfast_queue_oldest_wait_seconds", "Waiting time of the oldest job that is ready to run.", ("queue",)
        )
        self._add_limit_metrics()
        self.age = self.gauge("holdfast_queue_stats_age_seconds", "Age of the queue statistics.")
        self.overdue = self.gauge(
            "holdfast_prune_backlog",
            "Rows whose deletion is more than 5 minutes overdue, counted up to 10,000.",
            ("kind",),
        )
        self.missing = self.gauge(
            "holdfast_extension_missing",
            "Jobs that need an extension that no live process has, counted up to 10,000.",
            ("extension",),
        )
        self.workers = self.gauge("holdfast_workers", "Registered workers, by status.", ("status",))
        self.slots = self.gauge("holdfast_cluster_slots", "Jobs that all live workers can run at once.")
        self.busy = self.gauge("holdfast_cluster_slots_busy", "Jobs running, on all workers.")
        for status in STATUSES:
            self.workers.show(status)

    def _add_limit_metrics(self) -> None:
        labels = ("limit",)
        self.limit_units = self.gauge("holdfast_limit_units", "Units of a limit that running jobs hold.", labels)
        self.limit_full = self.gauge(
            "holdfast_limit_full",
            "1 while all units of a limit are held; of `key:TYPE`, the number of such keys.",
            labels,
        )
        self.limit_concurrency = self.gauge(
            "holdfast_limit_concurrency",
            "Units of a limit that may be held at once; of `key:TYPE`, of each key.",
            labels,
        )
        self.limit_rate = self.gauge(
            "holdfast_limit_rate", "Units of a limit that may start in a second; of `key:TYPE`, of each key.", labels
        )
        self.limit_tokens = self.gauge(
            "holdfast_limit_tokens", "Units of a limit that its rate allowed to start at the time of the count.", labels
        )

    # -- updated when something happens -----------------------------------------------------------------------

    def rejected_early(self, method: str, route: str, status: int) -> None:
        """A request that no handler saw. The method is whatever the client sent."""
        self.requests.observe(0.0, method if method in METHODS else OTHER, route, str(status))

    def uploaded(self, size: int, kind: str) -> None:
        self.uploads.observe(size, _media_type(kind))

    def sent(self, operation: str, seconds: float, status: int | None, outcome: str) -> None:
        """A webhook delivery or an alert was sent."""
        self.external.observe(seconds, WEBHOOK, operation)
        self.deliveries.add(1, "retried" if outcome == "pending" else outcome)
        if outcome != "delivered":
            self.external_errors.add(1, WEBHOOK, operation, "no_answer" if status is None else str(status))

    # -- refreshed before a scrape ----------------------------------------------------------------------------

    def show_depths(self, depths: QueueStats, age_seconds: float) -> None:
        """A queue that was exported before and is empty now is exported as empty, while there is room."""
        queues = fullest(QUEUES_MAX, depths.queues)
        for (queue,) in [*self.oldest.values]:
            if queue != OTHER and len(queues) < QUEUES_MAX:
                queues.setdefault(queue, QueueDepth())
        self.oldest.values = {(queue,): depth.oldest_seconds for queue, depth in queues.items()}
        self.jobs.values = {
            (queue, state): getattr(depth, state) for queue, depth in queues.items() for state in STATES
        }
        self.workers.values = {(status,): depths.workers.get(status, 0) for status in STATUSES}
        self.slots.set(depths.slots)
        self.busy.set(depths.running)
        self.age.set(age_seconds)
        self._show_limits(most_used(LIMITS_MAX, depths.limits))

    def _show_limits(self, limits: Mapping[str, LimitUse]) -> None:
        """What a limit does not have is not exported."""
        for gauge, figure in (
            (self.limit_units, "used"),
            (self.limit_full, "full"),
            (self.limit_concurrency, "concurrency"),
            (self.limit_rate, "rate"),
            (self.limit_tokens, "tokens"),
        ):
            found = {(name,): getattr(use, figure) for name, use in limits.items()}
            gauge.values = {labels: value for labels, value in found.items() if value is not None}

    def show_failures(self, counts: FailureCounts | None) -> None:
        """The database counts them for all processes. Nothing is exported before the first read, because a zero would
        look like a counter reset."""
        self.failures.values = {} if counts is None else {(): counts.failures}
        self.stale.values = {} if counts is None else {(): counts.stale_jobs_recovered}
        self.spent.values = {} if counts is None else {(): counts.max_retries_exceeded}

    def show_overdue(self, overdue: Overdue) -> None:
        self.overdue.values = {("jobs",): overdue.jobs, ("deliveries",): overdue.deliveries}

    def show_missing(self, missing: Mapping[str, int]) -> None:
        """An extension that is available again is exported as 0."""
        back = dict.fromkeys(self.missing.values, 0.0)
        self.missing.values = {**back, **{(name,): float(jobs) for name, jobs in missing.items()}}

    def _count_requests(self) -> None:
        """`http_requests_total` is computed from the histogram."""
        for labels, value in self.requests.values.items():
            self.requests_total.values[labels] = sum(value[:-1])

    def collect(self) -> Iterator[Metric]:
        yield from super().collect()
        yield from self._process.collect()


@lru_cache(maxsize=256)
def _media_type(kind: str) -> str:
    """Clients choose the media type: only known ones become label values."""
    media_type = kind.partition(";")[0].strip().lower()
    return media_type if media_type in MEDIA_TYPES else OTHER


def _labels_of(query: Query) -> Labels:
    return query.operation, query.table
