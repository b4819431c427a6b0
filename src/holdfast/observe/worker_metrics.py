"""All metrics of a worker process.

They never share a registry with those of a server: both have `db_query_duration_seconds`, with different labels.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.observe import extension_metrics
from holdfast.observe.common_metrics import CommonMetrics
from holdfast.observe.instruments import Gauge, SharedGauge, Snapshot
from holdfast.observe.storage_metrics import OPERATION_SECONDS, StorageMetrics

OUR_SECONDS = extension_metrics.SECONDS
SECONDS = (0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10)
MILLISECONDS = (10, 30, 50, 70, 100, 300, 500, 700, 1000, *range(1500, 10_001, 500))
# An extension that declares one of these under its exact name, with the same labels and buckets, provides its values.
FOR_EXTENSIONS = (
    "image_processing_errors_total",
    "cloudfront_operation_duration_seconds",
    "cloudfront_operation_errors_total",
)
DECLARED_MAX = 10_000  # label sets that the app declares: clients cannot add to them


class WorkerMetrics(CommonMetrics):
    """`types`: the job types that the app declares. A worker claims no others."""

    def __init__(self, types: Iterable[str] = ()) -> None:
        super().__init__()
        self._add_job_metrics()
        self._add_extension_metrics()
        self._add_query_metrics()
        self._add_holdfast_metrics()
        for instrument in self.instruments.values():
            if {"job_type", "type"} & set(instrument.labels):
                instrument.most = DECLARED_MAX
        for name in types:
            self.active.show(name)
            self.inflight.show(name)

    def _add_job_metrics(self) -> None:
        self.processing = self.histogram(
            "job_processing_duration_seconds",
            "Duration of attempts, by the state that the job went to.",
            ("job_type", "status"),
            buckets=SECONDS,
        )
        self.processed = self.counter(
            "job_processed_total", "Finished attempts, by the state that the job went to.", ("job_type", "status")
        )
        self.latency = self.histogram(
            "job_queue_latency_milliseconds",
            "Time from when a job was due to when it started.",
            ("job_type",),
            buckets=MILLISECONDS,
        )
        self.active = self.gauge("job_active_count", "Jobs running in this worker.", ("job_type",))
        self.depth = self.same("job_queue_depth", "Jobs in the database that are ready to run.", ("job_type",))
        self.inflight = self.gauge("jobs_inflight", "Jobs running in this worker.", ("type",))
        self.duration = self.histogram("job_duration_seconds", "Duration of attempts.", buckets=SECONDS)
        self.failures = self.counter("job_failures_total", "Failed attempts, by error code.", ("code",))
        self.retries = self.counter("retry_attempts_total", "Attempts after the first one of a job.")

    def _add_extension_metrics(self) -> None:
        """Extensions provide the values of these; object storage provides those of S3."""
        self.counter("image_processing_errors_total", "Images that failed to process.", ("error_type",))
        self.adopt(StorageMetrics().instruments)
        self.histogram(
            "cloudfront_operation_duration_seconds",
            "Duration of CloudFront operations.",
            ("operation",),
            buckets=OPERATION_SECONDS,
        )
        self.counter("cloudfront_operation_errors_total", "Failed CloudFront operations.", ("operation", "error_code"))

    def _add_query_metrics(self) -> None:
        self.queries = self.histogram(
            "db_query_duration_seconds", "Duration of the worker's database queries.", ("query_type",), buckets=SECONDS
        )
        self.query_errors = self.counter(
            "db_query_errors_total", "Failed database queries.", ("query_type", "error_type")
        )

    def _add_holdfast_metrics(self) -> None:
        self.waited = self.histogram(
            "holdfast_wait_seconds", "Time from when a job was due to when it started.", ("queue",), buckets=OUR_SECONDS
        )
        self.ran = self.histogram("holdfast_run_seconds", "Duration of attempts.", ("job_type",), buckets=OUR_SECONDS)
        self.attempts = self.counter(
            "holdfast_attempts_total", "Finished attempts, by outcome.", ("job_type", "outcome")
        )
        self.lost = self.counter("holdfast_leases_lost_total", "Attempts that lost their lease while running.")
        self.slots = self.gauge(
            "holdfast_slots", "Jobs that this worker can run at once, besides one in its reserved slot."
        )
        self.busy = self.gauge("holdfast_slots_busy", "Slots in use, without the reserved one.")
        self.processes = self.gauge("holdfast_worker_processes", "Running worker processes.")

    def show_labels(self, snapshot: Snapshot) -> None:
        """Export all label sets of a process at zero, except gauges that all processes share."""
        for instrument, values in self.known(snapshot):
            if not isinstance(instrument, SharedGauge):
                for labels, _ in values:
                    instrument.show(*labels)

    def keep_counters(self, snapshot: Snapshot) -> None:
        """A process has exited: keep its counters, and reset its gauges."""
        self.show_labels(snapshot)
        for instrument, values in self.known(snapshot):
            if not isinstance(instrument, Gauge):
                for labels, value in values:
                    instrument.add_up(labels, value)
