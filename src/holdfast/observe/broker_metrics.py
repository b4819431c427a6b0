"""Broker metrics that servers and workers share, and the names of metrics that both have."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.observe.instruments import MetricsRegistry

HOOK_FAILURES = "Extension guards and effects that failed in this process; each is retried."
ATTEMPT_SECONDS, ATTEMPT_LABELS = "holdfast_attempt_seconds", ("job_type", "outcome")
REAPED = "Expired leases that this process reaped, from workers that crashed or stopped sending heartbeats."


class BrokerMetrics:
    def __init__(self, registry: MetricsRegistry) -> None:
        self._hints = registry.counter(
            "holdfast_hints_total",
            "Hints that work is available, by direction and outcome.",
            ("way", "outcome"),
        )
        self._up = registry.same(
            "holdfast_broker_up", "1 while the broker is reachable, 0 while it is not.", combine=min
        )
        self._up.values.clear()  # no sample without a broker
        self._open = registry.same(
            "holdfast_breaker_open", "1 while the circuit breaker is open after a broker failure."
        )

    def show(self, hints: Mapping[tuple[str, str], int], *, up: bool, breaker_open: bool) -> None:
        self._hints.values = dict(hints.items())
        self._up.set(up)
        self._open.set(breaker_open)
