"""The control plane: a job as clients hand it in and see it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.wire.base import Attempts, Body, Key, Name, Priority, ResponseBody, Seconds, Time


class JobIntent(Body):
    """A job to be done."""

    job_type: Name
    payload: dict[str, Any]
    idempotency_key: Key | None = None
    queue: Name | None = None
    priority: Priority = 0
    run_at: Time | None = None
    delay_seconds: Seconds | None = None
    max_attempts: Attempts | None = None
    tags: list[Name] = []
    subject: Name | None = None
    lifecycle: Name | None = None


class JobIntents(Body):
    jobs: list[JobIntent]


class JobAccepted(ResponseBody):
    job_id: str
    status: str


class JobsAccepted(ResponseBody):
    jobs: list[JobAccepted]


class ProgressView(ResponseBody):
    percent: float | None = None
    step: str | None = None
    eta_seconds: float | None = None


class ErrorView(ResponseBody):
    code: str
    message: str


class PartProgress(ResponseBody):
    """A named piece of a job."""

    name: str
    status: str
    percent: float | None = None
    total: int | None = None
    done: int | None = None


class JobView(ResponseBody):
    """What a client may know of a job: never its payload, attempts, worker, lease or traces. `partial`: it was canceled
    after it had started, and what it reported, its counters among it, is not all. `durationSeconds`: from its first
    start to its end, once it has ended."""

    job_id: str
    job_type: str
    status: str
    created_at: Time
    updated_at: Time
    subject: str | None = None
    progress: ProgressView | None = None
    counters: dict[str, Any] | None = None
    result: Any = None
    error: ErrorView | None = None
    canceled_at: Time | None = None
    partial: bool = False
    duration_seconds: float | None = None
    parts: list[PartProgress] | None = None


class JobPage(ResponseBody):
    jobs: list[JobView]
    next_cursor: str | None


class JobEvent(ResponseBody):
    """One line of a job's history as a client sees it; `from` and `to` are the lifecycle's own words."""

    job_id: str
    seq: int
    at: Time
    verb: str
    job_type: str | None = None
    subject: str | None = None
    status: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    reason: str | None = None
    percent: float | None = None
    step: str | None = None
    counters: dict[str, Any] | None = None
    parts: list[PartProgress] | None = None


class StreamReset(ResponseBody):
    """Events may be missing before what follows. `reason`: `ahead`, the log ends before the id that was sent, as after
    a restore; `pruned`, events behind it were deleted with their jobs."""

    reason: str


class OperatorEvent(ResponseBody):
    """The same line with everything that it says; `data` holds counters or an error."""

    job_id: str
    seq: int
    at: Time
    verb: str
    tenant: str
    attempt: int
    epoch: int
    actor: str
    job_type: str | None = None
    subject: str | None = None
    queue: str | None = None
    status: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    reason: str | None = None
    worker_id: str | None = None
    percent: float | None = None
    step: str | None = None
    data: Any = None


class WorkerEvent(ResponseBody):
    """A worker is `online`, `idle`, `busy`, `offline` or `disabled` from now on."""

    worker_id: str
    at: Time
    status: str
    name: str | None = None
    was: str | None = None
