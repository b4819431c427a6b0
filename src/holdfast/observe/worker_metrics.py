"""Every metric of worker processes: those of documents 000 and 002 to the letter, and a family of our own.

They are never in one registry with those of a server: `db_query_duration_seconds` is in both, with other labels.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.observe import extension_metrics
from holdfast.observe.broker_metrics import ATTEMPT_LABELS, ATTEMPT_SECONDS, HOOK_FAILURES, REAPED, BrokerMetrics
from holdfast.observe.instruments import Gauge, MetricsRegistry, SharedGauge, Snapshot
from holdfast.observe.storage_metrics import OPERATION_SECONDS, StorageMetrics

OUR_SECONDS = extension_metrics.SECONDS
SECONDS = (0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10)
MILLISECONDS = (10, 30, 50, 70, 100, 300, 500, 700, 1000, *range(1500, 10_001, 500))
# An extension that declares one of these under its exact name, with the same labels and buckets, feeds it.
FOR_EXTENSIONS = (
    "image_processing_errors_total",
    "cloudfront_operation_duration_seconds",
    "cloudfront_operation_errors_total",
)
DECLARED_MAX = 10_000  # sets of label values that the app declares: clients cannot add to them


class WorkerMetrics(MetricsRegistry):
    """`types` are those that the app declares. A worker claims no others."""

    def __init__(self, types: Iterable[str] = ()) -> None:
        super().__init__()
        self._of_jobs()
        self._of_what_apps_use()
        self._of_the_database()
        self._our_own()
        self.hinting = BrokerMetrics(self)
        for instrument in self.instruments.values():
            if {"job_type", "type"} & set(instrument.labels):
                instrument.most = DECLARED_MAX
        for name in types:
            self.active.show(name)
            self.inflight.show(name)

    def _of_jobs(self) -> None:
        self.processing = self.histogram(
            "job_processing_duration_seconds",
            "How long attempts ran, by the state that the job went to.",
            ("job_type", "status"),
            buckets=SECONDS,
        )
        self.processed = self.counter(
            "job_processed_total", "Attempts that ended, by the state that the job went to.", ("job_type", "status")
        )
        self.latency = self.histogram(
            "job_queue_latency_milliseconds",
            "How long jobs that were due waited to start.",
            ("job_type",),
            buckets=MILLISECONDS,
        )
        self.active = self.gauge("job_active_count", "Jobs that run here now.", ("job_type",))
        self.depth = self.same("job_queue_depth", "Jobs in the database that could run now.", ("job_type",))
        self.inflight = self.gauge("jobs_inflight", "Jobs that run here now.", ("type",))
        self.duration = self.histogram("job_duration_seconds", "How long attempts ran.", buckets=SECONDS)
        self.failures = self.counter("job_failures_total", "Attempts that failed, by the error's code.", ("code",))
        self.retries = self.counter("retry_attempts_total", "Attempts that were not the first of their job.")

    def _of_what_apps_use(self) -> None:
        """Nothing in the platform feeds these by itself: extensions do, those of S3 by their storage."""
        self.counter("image_processing_errors_total", "Images that could not be processed.", ("error_type",))
        self.adopt(StorageMetrics().instruments)
        self.histogram(
            "cloudfront_operation_duration_seconds",
            "How long operations on CloudFront took.",
            ("operation",),
            buckets=OPERATION_SECONDS,
        )
        self.counter(
            "cloudfront_operation_errors_total", "Operations on CloudFront that failed.", ("operation", "error_code")
        )

    def _of_the_database(self) -> None:
        self.queries = self.histogram(
            "db_query_duration_seconds", "How long the queries of this worker took.", ("query_type",), buckets=SECONDS
        )
        self.query_errors = self.counter("db_query_errors_total", "Queries that failed.", ("query_type", "error_type"))

    def _our_own(self) -> None:
        self.waited = self.histogram(
            "holdfast_wait_seconds", "How long jobs that were due waited to start.", ("queue",), buckets=OUR_SECONDS
        )
        self.ran = self.histogram("holdfast_run_seconds", "How long attempts ran.", ("job_type",), buckets=OUR_SECONDS)
        self.attempts = self.counter(
            "holdfast_attempts_total", "Attempts that ended, by what became of them.", ("job_type", "outcome")
        )
        self.lost = self.counter("holdfast_leases_lost_total", "Attempts that lost their lease.")
        self.refused = self.counter(
            "holdfast_late_writes_refused_total", "Reports that came too late: the job was no longer ours."
        )
        self.reaped = self.counter("holdfast_leases_reaped_total", REAPED)
        self.taken = self.histogram(
            ATTEMPT_SECONDS,
            "How long attempts were that this process took from others.",
            ATTEMPT_LABELS,
            buckets=OUR_SECONDS,
        )
        self.hook_failures = self.counter("holdfast_hook_failures_total", HOOK_FAILURES, ("extension", "verb"))
        self.slots = self.gauge("holdfast_slots", "Jobs that can run here at once.")
        self.busy = self.gauge("holdfast_slots_busy", "Slots that are taken.")
        self.processes = self.gauge("holdfast_worker_processes", "Worker processes that run.")

    def meet(self, snapshot: Snapshot) -> None:
        """All names that a process tells of, at zero. What all processes see is not for the dead to tell."""
        for instrument, values in self.known(snapshot):
            if not isinstance(instrument, SharedGauge):
                for labels, _ in values:
                    instrument.show(*labels)

    def outlive(self, snapshot: Snapshot) -> None:
        """A process has ended: what it counted goes on counting, and nothing runs in it."""
        self.meet(snapshot)
        for instrument, values in self.known(snapshot):
            if not isinstance(instrument, Gauge):
                for labels, value in values:
                    instrument.add_up(labels, value)
