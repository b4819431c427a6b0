"""Every metric of server processes: those of document 000 to the letter, and a family of our own.

They are never in one registry with those of a worker: `db_query_duration_seconds` is in both, with other labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from mimetypes import MimeTypes

from prometheus_client.core import Metric
from prometheus_client.process_collector import ProcessCollector

from holdfast.engine.maintenance.prune import Overdue
from holdfast.engine.reads.queue_stats import Depth, Depths, fullest
from holdfast.engine.webhooks.failure_counts import FailureCounts
from holdfast.observe.broker_metrics import ATTEMPT_LABELS, ATTEMPT_SECONDS, HOOK_FAILURES, REAPED, BrokerMetrics
from holdfast.observe.extension_metrics import SECONDS as OUR_SECONDS
from holdfast.observe.instruments import OTHER, Labels, MetricsRegistry
from holdfast.observe.query_metrics import QueryTimes
from holdfast.store.queries import Query

SECONDS = (0.1, 0.3, 0.5, 1, 2, 5, 10)
BYTES = tuple(2**power for power in range(10, 21))  # 1 KiB to 1 MiB, the longest body of a job
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
MEDIA_TYPES = frozenset({"application/gzip", *(kind for known in MimeTypes().types_map for kind in known.values())})
WEBHOOK = "webhook"
REQUESTS_MAX = 5_000  # routes times statuses: clients cannot add to them
QUEUES_MAX = 100  # told apart; the others are counted together
STATES = ("waiting", "paused", "delayed", "retrying", "created", "running")
STATUSES = ("active", "idle", "busy", "offline", "disabled")
OUTCOMES = ("delivered", "retried", "failed")


class ServerMetrics(MetricsRegistry):
    def __init__(self) -> None:
        super().__init__()
        self._process = ProcessCollector(registry=None)
        self._of_requests()
        self._of_the_database()
        self._of_others()
        self._of_jobs()
        self.hinting = BrokerMetrics(self)
        self.before.append(self._follow)

    def _of_requests(self) -> None:
        labels = ("method", "route", "status_code")
        self.requests = self.histogram(
            "http_request_duration_seconds",
            "How long requests took; of a stream, until it began.",
            labels,
            buckets=SECONDS,
        )
        self.requests_total = self.counter("http_requests_total", "Requests that were answered.", labels)
        self.requests.most = self.requests_total.most = REQUESTS_MAX
        self.uploads = self.histogram(
            "upload_size_bytes", "How long bodies of jobs and uploaded files were.", ("mime_type",), buckets=BYTES
        )
        self.streams = self.gauge("holdfast_streams", "Live streams that are open here.")

    def _of_the_database(self) -> None:
        labels = ("operation", "table")
        took = self.histogram(
            "db_query_duration_seconds", "How long the queries of this server took.", labels, buckets=SECONDS
        )
        errors = self.counter("db_query_error_total", "Queries that failed.", (*labels, "error_code"))
        self.queries = QueryTimes(self, took, errors, _what_and_where)

    def _of_others(self) -> None:
        labels = ("service", "operation")
        self.external = self.histogram(
            "external_duration_seconds", "How long others took to answer us.", labels, buckets=SECONDS
        )
        self.external_errors = self.counter(
            "external_error_total", "Calls to others that failed.", (*labels, "error_code")
        )
        self.deliveries = self.counter(
            "holdfast_deliveries_total", "Webhook messages and alerts sent from here, by outcome.", ("outcome",)
        )
        for outcome in OUTCOMES:
            self.deliveries.show(outcome)

    def _of_jobs(self) -> None:
        self.created = self.counter("holdfast_jobs_created_total", "Jobs that were created here, by HTTP.", ("queue",))
        self.reaped = self.counter("holdfast_leases_reaped_total", REAPED)
        self.attempts = self.histogram(
            ATTEMPT_SECONDS,
            "How long attempts were that workers reported here, or lost here.",
            ATTEMPT_LABELS,
            buckets=OUR_SECONDS,
        )
        self.hook_failures = self.counter("holdfast_hook_failures_total", HOOK_FAILURES, ("extension", "verb"))
        self.failures = self.counter(
            "holdfast_job_failures_total", "Attempts that failed or were lost, on all workers since the beginning."
        )
        self.stale = self.counter(
            "holdfast_stale_jobs_recovered_total", "Jobs taken from workers that died or fell silent, on all workers."
        )
        self.spent = self.counter(
            "holdfast_max_retries_exceeded_total", "Jobs that used up their attempts, on all workers."
        )
        self.refused = self.counter(
            "holdfast_late_writes_refused_total", "Words of workers that were refused here: the lease was not theirs."
        )
        self.jobs = self.gauge(
            "holdfast_queue_jobs", "Jobs in the database that have not ended, by queue.", ("queue", "state")
        )
        self.oldest = self.gauge(
            "holdfast_queue_oldest_wait_seconds", "How long the oldest job that could run has waited.", ("queue",)
        )
        self.age = self.gauge("holdfast_queue_age_seconds", "How long ago the jobs in the queues were counted.")
        self.overdue = self.gauge(
            "holdfast_prune_backlog",
            "Rows that should have been deleted more than 5 minutes ago, by kind, counted up to 10,000.",
            ("kind",),
        )
        self.missing = self.gauge(
            "holdfast_extension_missing",
            "Jobs that need an extension which no live process has, counted up to 10,000.",
            ("extension",),
        )
        self.workers = self.gauge("holdfast_workers", "Workers that are registered, by status.", ("status",))
        self.slots = self.gauge("holdfast_cluster_slots", "Jobs that all workers that live can run at once.")
        self.busy = self.gauge("holdfast_cluster_slots_busy", "Jobs that run, on all workers.")
        for status in STATUSES:
            self.workers.show(status)

    # -- what is fed as it happens ----------------------------------------------------------------------------

    def turned_away(self, method: str, route: str, status: int) -> None:
        """Before any handler was asked; in next to no time. Clients may call a method whatever they like."""
        self.requests.observe(0.0, method if method in METHODS else OTHER, route, str(status))

    def uploaded(self, size: int, kind: str) -> None:
        """Clients choose the kind, so only those that are well known are told by name."""
        named = kind.partition(";")[0].strip().lower()
        self.uploads.observe(size, named if named in MEDIA_TYPES else OTHER)

    def sent(self, operation: str, seconds: float, status: int | None, outcome: str) -> None:
        """A webhook message or an alert, and what came back."""
        self.external.observe(seconds, WEBHOOK, operation)
        self.deliveries.add(1, "retried" if outcome == "pending" else outcome)
        if outcome != "delivered":
            self.external_errors.add(1, WEBHOOK, operation, "no_answer" if status is None else str(status))

    # -- what is asked for when somebody reads ----------------------------------------------------------------

    def show_depths(self, depths: Depths, age_seconds: float) -> None:
        """A queue that has been shown and is empty now is shown as empty, while there is room."""
        queues = fullest(QUEUES_MAX, depths.queues)
        for (queue,) in [*self.oldest.values]:
            if queue != OTHER and len(queues) < QUEUES_MAX:
                queues.setdefault(queue, Depth())
        self.oldest.values = {(queue,): depth.oldest_seconds for queue, depth in queues.items()}
        self.jobs.values = {
            (queue, state): getattr(depth, state) for queue, depth in queues.items() for state in STATES
        }
        self.workers.values = {(status,): depths.workers.get(status, 0) for status in STATUSES}
        self.slots.set(depths.slots)
        self.busy.set(depths.running)
        self.age.set(age_seconds)

    def show_failures(self, counts: FailureCounts | None) -> None:
        """The database counts them for all processes: each server shows the same, and nothing before it has asked, for
        a zero would look like a counter that began anew."""
        self.failures.values = {} if counts is None else {(): counts.failures}
        self.stale.values = {} if counts is None else {(): counts.stale_jobs_recovered}
        self.spent.values = {} if counts is None else {(): counts.max_retries_exceeded}

    def show_overdue(self, overdue: Overdue) -> None:
        self.overdue.values = {("jobs",): overdue.jobs, ("deliveries",): overdue.deliveries}

    def show_missing(self, missing: Mapping[str, int]) -> None:
        """One that was missing and is there again is shown as 0."""
        back = dict.fromkeys(self.missing.values, 0.0)
        self.missing.values = {**back, **{(name,): float(jobs) for name, jobs in missing.items()}}

    def _follow(self) -> None:
        """The same requests: counted once, and shown twice."""
        for labels, value in self.requests.values.items():
            self.requests_total.values[labels] = sum(value[:-1])

    def collect(self) -> Iterator[Metric]:
        yield from super().collect()
        yield from self._process.collect()


def _what_and_where(query: Query) -> Labels:
    return query.operation, query.table
