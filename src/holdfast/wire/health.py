"""What a server says about itself."""

from __future__ import annotations

from typing import Any

from holdfast.wire.base import ResponseBody, Time


class Alive(ResponseBody):
    status: str


class StorageView(ResponseBody):
    total_bytes: int
    free_bytes: int


class JobCounts(ResponseBody):
    """Each up to 10,000. `waiting` could run now; `later` wait for their time; `died` in the last hour."""

    waiting: int
    later: int
    running: int
    died: int


class Health(ResponseBody):
    """`status` is `ok` or `down`. Numbers are those of the last time that the database answered. `broker` is there
    where hints go through one; without it all goes on, by the database. `failing_loops` are there where something that
    the server does beside its answers keeps failing, and `weak_settings` where settings of the database, or a defect of
    its version, make jobs that were acknowledged less than durable. `missing_extensions` are there where jobs need
    extensions that no live process has: how many jobs, by the extension. `extensions` are fields that
    extensions of the server add, by the extension and the field."""

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
