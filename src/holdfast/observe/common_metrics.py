"""Metrics that servers and workers both have."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.observe.extension_metrics import SECONDS
from holdfast.observe.instruments import Labels, MetricsRegistry


class CommonMetrics(MetricsRegistry):
    def __init__(self) -> None:
        super().__init__()
        self.attempt_seconds = self.histogram(
            "holdfast_attempt_seconds",
            "Duration of attempts that were reported to this process over HTTP, or whose expired lease it reaped.",
            ("job_type", "outcome"),
            buckets=SECONDS,
        )
        self.refused = self.counter(
            "holdfast_stale_writes_rejected_total", "Worker reports rejected because the lease was lost or expired."
        )
        self._reaped = self.counter(
            "holdfast_leases_reaped_total",
            "Expired leases that this process reaped, from workers that crashed or stopped sending heartbeats.",
        )
        self._hook_failures = self.counter(
            "holdfast_hook_failures_total",
            "Extension guards and effects that failed in this process; each is retried.",
            ("extension", "verb"),
        )
        self._hints = self.counter(
            "holdfast_hints_total", "Hints that work is available, by direction and outcome.", ("way", "outcome")
        )
        self._broker_up = self.same(
            "holdfast_broker_up", "1 while the broker is reachable, 0 while it is not.", combine=min
        )
        self._broker_up.values.clear()  # no sample without a broker
        self._breaker_open = self.same(
            "holdfast_breaker_open", "1 while the circuit breaker is open after a broker failure."
        )

    def show_engine(self, reaped: int, hook_failures: Mapping[Labels, int]) -> None:
        """What the engine of this process has counted."""
        self._reaped.values[()] = reaped
        self._hook_failures.values.update(hook_failures)

    def show_broker(self, hints: Mapping[tuple[str, str], int], *, up: bool, breaker_open: bool) -> None:
        self._hints.values = dict(hints.items())
        self._broker_up.set(up)
        self._breaker_open.set(breaker_open)
