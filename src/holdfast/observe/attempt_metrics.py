"""Durations of attempts that end in the database: reported over HTTP, or lost when the lease expired."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast.observe.instruments import Histogram
from holdfast.observe.logs import ATTEMPTS
from holdfast.redaction import redacted
from holdfast.store import Row
from holdfast.store.queries import Query

log = logging.getLogger(ATTEMPTS)


@dataclass
class AttemptMetrics:
    """Measured by the database's clock, from the claim to the transition that ended the attempt.

    `lost_only`: count expired leases only, because the worker itself reports the rest."""

    seconds: Histogram
    lost_only: bool = False

    def observes(self, query: Query) -> bool:
        return query.ends is not None and (query.move == "reap" or not self.lost_only)

    def record(self, query: Query, rows: list[Row]) -> None:
        for row in rows:
            took = max(0.0, (row["updated_at"] - row["claimed_at"]).total_seconds())
            self.seconds.observe(took, row["type"], str(query.ends))
            job_type = redacted(row["type"])
            log.info("job %s (%s), attempt %d, %s after %.3f s", row["id"], job_type, row["attempt"], query.ends, took)
