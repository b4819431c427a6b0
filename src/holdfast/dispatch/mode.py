"""The dispatch modes and their parameters."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.hint import HINTS_MAX


@dataclass(frozen=True, kw_only=True)
class Mode:
    also_by_database: bool  # each hint is sent both ways, and workers poll as often as without a broker
    shared: bool = False  # all kinds of worker read from one queue: hints for other kinds must be returned
    wait_seconds: float = 0.5  # of one receive call: an unresponsive broker is noticed a little later
    batch_max: int = 100  # hints received at once
    alike: int = HINTS_MAX  # hints of one kind sent at once: more would not wake workers sooner


MODES = {
    "redis": Mode(also_by_database=False),
    "nats": Mode(also_by_database=False),
    "hybrid": Mode(also_by_database=True),
    # Each request is billed, and each message takes as long as several jobs.
    "sqs": Mode(also_by_database=True, shared=True, wait_seconds=5, batch_max=10, alike=10),
}
