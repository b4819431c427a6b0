"""What servers and workers tell alike: how many hints went which way, and whether a broker carries them."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.observe.instruments import MetricsRegistry

HOOK_FAILURES = "Guards and effects of extensions that failed here, by extension and verb; each is tried again."
ATTEMPT_SECONDS, ATTEMPT_LABELS = "holdfast_attempt_seconds", ("job_type", "outcome")
REAPED = "Leases that this process has taken from workers that died or fell silent."


class BrokerMetrics:
    def __init__(self, registry: MetricsRegistry) -> None:
        self._hints = registry.counter(
            "holdfast_hints_total",
            "Hints that work is there, by the way they go and what became of them.",
            ("way", "outcome"),
        )
        self._up = registry.same(
            "holdfast_broker_up", "1 while the broker carries hints, 0 while it does not.", of_many=min
        )
        self._up.values.clear()  # where there is none it is neither
        self._open = registry.same("holdfast_breaker_open", "1 while the broker is left alone after a failure.")

    def show(self, hints: Mapping[tuple[str, str], int], *, up: bool, left_alone: bool) -> None:
        self._hints.values = dict(hints.items())
        self._up.set(up)
        self._open.set(left_alone)
