"""Response bodies of the health checks."""

from __future__ import annotations

from typing import Any

from holdfast.wire.base import ResponseBody, Time


class Alive(ResponseBody):
    status: str


class StorageView(ResponseBody):
    total_bytes: int
    free_bytes: int


class JobCounts(ResponseBody):
    """Each is counted up to 10,000. `waiting` can run now, `later` are scheduled, `died` failed in the last hour."""

    waiting: int
    later: int
    running: int
    died: int


class Health(ResponseBody):
    """`status` is `ok` or `down`. The numbers are from the last successful query (`checkedAt`). `broker`: state of the
    message broker, if one is configured; without it the server polls the database. `failingLoops`: background tasks of
    the server that keep failing. `weakSettings`: database settings or a database version that make acknowledged jobs
    less than durable. `missingExtensions`: number of jobs that need an extension which no live process has.
    `extensions`: fields that the extensions of the server add."""

    status: str
    database: str
    broker: str | None = None
    failing_loops: list[str] | None = None
    weak_settings: list[str] | None = None
    missing_extensions: dict[str, int] | None = None
    extensions: dict[str, dict[str, Any]] | None = None
    checked_at: Time | None = None
    active_workers: int | None = None
    pending_jobs: int | None = None
    jobs: JobCounts | None = None
    storage: StorageView | None = None
