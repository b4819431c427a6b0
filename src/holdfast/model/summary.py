"""The summary of a job for clients: without payload and lease, which are not read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.lifecycle import FINAL, STATUS, State


class JobSummary(msgspec.Struct, frozen=True):
    """`counters`, `result` and `error` are the stored JSON text, which is mostly passed on."""

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
    parts: str | None = None  # JSON text; only for a single job

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


SUMMARY_COLUMNS = JobSummary.__struct_fields__[:-2]  # without the time of the query and the parts
