"""A job as far as whoever handed it in may know it: neither its payload nor its lease is even read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.lifecycle import FINAL, STATUS, State


class JobSummary(msgspec.Struct, frozen=True):
    """`counters`, `result` and `error` are the JSON that is stored, as text: most of it is only passed on."""

    id: str
    type: str
    state: State
    reason: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    step: str | None
    percent: float | None
    eta_at: datetime | None
    counters: str | None
    result: str | None
    error: str | None
    started_at: datetime | None
    subject: str | None
    now_at: datetime
    parts: str | None = None  # JSON as well, where one job was asked for

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> JobSummary:
        job_id, kind, state, *rest = row
        return cls(job_id, kind, State(state), *rest)

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def status(self) -> str:
        return STATUS[self.state]


OUTLINE_COLUMNS = JobSummary.__struct_fields__[:-2]  # the time of asking is no column, the parts are rows
