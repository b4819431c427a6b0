"""The data of `holdfast top` at one moment: printed by `--json`, and rendered on the screen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`lease_seconds` is `leaseSeconds` in JSON, as it is over HTTP."""


class QueueRow(SnapshotRow, frozen=True, kw_only=True):
    """Rates are None in the first snapshot. `created`: not accepted yet."""

    queue: str
    waiting: int = 0
    delayed: int = 0
    retrying: int = 0
    created: int = 0
    running: int = 0
    dead_last_hour: int = 0
    in_per_second: float | None = None
    out_per_second: float | None = None
    oldest_waiting_at: datetime | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None

    @property
    def unfinished(self) -> int:
        return self.waiting + self.delayed + self.retrying + self.created + self.running


class LimitRow(SnapshotRow, frozen=True, kw_only=True):
    """`key:TYPE` is a row for all keys of a type: `used` by all of them, `concurrency` and `rate` of each, and `full`
    is how many have no unit left. Of other limits it is 0 or 1."""

    limit: str
    used: int
    concurrency: int | None
    rate: float | None
    tokens: float | None
    full: int


class WorkerRow(SnapshotRow, frozen=True, kw_only=True):
    """`leases` may be more than `slots`: some jobs are prefetched."""

    worker_id: str
    name: str | None
    status: str
    slots: int | None
    leases: int
    last_heartbeat_at: datetime | None

    @property
    def alive(self) -> bool:
        return self.status not in ("offline", "silent")


class RunningRow(SnapshotRow, frozen=True, kw_only=True):
    job_id: str
    job_type: str
    queue: str
    attempt: int
    max_attempts: int
    step: str | None
    percent: float | None
    eta_at: datetime | None
    since: datetime
    cancel_requested: bool
    worker_id: str


class EndedRow(SnapshotRow, frozen=True, kw_only=True):
    """`state` is the lifecycle's state name; `seconds` is the duration of the last attempt."""

    job_id: str
    job_type: str
    queue: str
    status: str
    state: str
    stored_state: str
    code: str | None
    attempt: int
    max_attempts: int
    seconds: float | None
    at: datetime


class Totals(SnapshotRow, frozen=True, kw_only=True):
    waiting: int
    delayed: int
    retrying: int
    created: int
    running: int
    dead_last_hour: int
    in_per_second: float | None
    out_per_second: float | None


class TopSnapshot(SnapshotRow, frozen=True, kw_only=True):
    """`counted_at`: when `waiting` to `dead_last_hour` and the limits were counted; slow counting runs less often."""

    database: str
    at: datetime
    counted_at: datetime
    totals: Totals
    queues: list[QueueRow]
    limits: list[LimitRow]
    workers: list[WorkerRow]
    running: list[RunningRow]
    ended: list[EndedRow]


def totals_of(queues: list[QueueRow], *, rated: bool) -> Totals:
    def total(name: str) -> Any:
        return sum(getattr(queue, name) for queue in queues) if rated or not name.endswith("_per_second") else None

    return Totals(**{name: total(name) for name in Totals.__struct_fields__})
