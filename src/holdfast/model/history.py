"""The history of a job: events (append-only), attempts (one per execution), parts (kept across retries)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.json import decode_or_none


class Event(msgspec.Struct, frozen=True):
    """An event of a job. `pos` orders events across jobs; `seq` has no gaps within a job."""

    job_id: str
    seq: int
    pos: int
    tenant: str
    at: datetime
    verb: str
    from_state: str | None
    to_state: str | None
    attempt: int
    epoch: int
    actor: str
    worker_id: str | None
    reason: str | None
    step: str | None
    percent: float | None
    data: Any

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Event:
        values = list(row)
        values[-1] = decode_or_none(values[-1])
        return cls(*values)


class Attempt(msgspec.Struct, frozen=True):
    """A finished attempt, identified by job and epoch; its token is kept for repeated requests."""

    job_id: str
    epoch: int
    tenant: str
    attempt: int
    worker_id: str
    instance: str | None
    token: str
    started_at: datetime
    ended_at: datetime
    outcome: str
    to_state: str
    reason: str | None
    error: Any
    worker_name: str | None = None  # only where it is requested; not a column

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Attempt:
        values = list(row)
        values[_ERROR] = decode_or_none(values[_ERROR])
        return cls(*values)


ATTEMPT_COLUMNS = Attempt.__struct_fields__[:-1]
_ERROR = ATTEMPT_COLUMNS.index("error")


class PartStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


PART_BYTES_MAX = 16 * 1024  # of its data, as JSON


class PartReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A named sub-unit of a job, as its worker reports it. `error`: why it failed or was skipped."""

    name: str
    status: str = PartStatus.PENDING.value
    percent: float | None = None
    total: int | None = None
    done: int | None = None
    error: str | None = None
    data: Any = None
    reopen: bool = False  # run a finished part again


class Part(PartReport, frozen=True, kw_only=True):
    """A part as it is stored, with its own status; a finished one is not done again on a retry."""

    status: PartStatus = PartStatus.PENDING
    started_at: datetime | None = None
    completed_at: datetime | None = None

    @classmethod
    def from_row(cls, row: Any) -> Part:
        values = {name: row[name] for name in PART_COLUMNS}
        return cls(**{**values, "status": PartStatus(values["status"]), "data": decode_or_none(values["data"])})

    def fields(self) -> dict[str, Any]:
        """The stored columns."""
        return {name: getattr(self, name) for name in PART_COLUMNS}


PART_COLUMNS = tuple(name for name in Part.__struct_fields__ if name != "reopen")


EVENT_COLUMNS = Event.__struct_fields__
