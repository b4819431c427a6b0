"""What the ways to send hints differ in."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.hint import HINTS_MAX


@dataclass(frozen=True, kw_only=True)
class Mode:
    also_by_database: bool  # each hint goes both ways, and polling is no rarer than without a broker
    shared: bool = False  # all kinds of worker read from one queue: what is for others must be given back
    patience_seconds: float = 0.5  # of one request for hints: a broker that has gone silent is noticed a little later
    most: int = 100  # hints that come at once
    alike: int = HINTS_MAX  # hints of one kind that are sent at once: more would wake nobody sooner


MODES = {
    "redis": Mode(also_by_database=False),
    "nats": Mode(also_by_database=False),
    "hybrid": Mode(also_by_database=True),
    # Each request costs money, and each message the time of several jobs.
    "sqs": Mode(also_by_database=True, shared=True, patience_seconds=5, most=10, alike=10),
}
