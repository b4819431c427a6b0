"""Request and response bodies of the client API: jobs and their events."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.names import Name
from holdfast.model.numbers import Seconds
from holdfast.wire.base import Attempts, Body, Key, Priority, ResponseBody, Time


class JobIntent(Body):
    """A job to create."""

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
    limit_key: Key | None = None
    fairness_key: Key | None = None
    limits: dict[str, int] | None = None


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
    """A named part of a job."""

    name: str
    status: str
    percent: float | None = None
    total: int | None = None
    done: int | None = None


class JobView(ResponseBody):
    """A job as clients see it: without payload, attempts, worker, lease and traces. `partial`: the job was canceled
    after it had started, so its progress, counters and parts are incomplete. `durationSeconds`: from the first start to
    the end, for a job that has ended."""

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
    """An event of a job as clients see it; `from` and `to` are state names of the lifecycle."""

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
    """Events may be missing before the next one: read the jobs again. `reason`: `ahead`, the event log ends before the
    `Last-Event-ID` that was sent, as after a restore; `pruned`, later events were deleted with their jobs."""

    reason: str


class OperatorEvent(ResponseBody):
    """An event of a job as operators see it; `data` holds counters or an error."""

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
    """A worker has become `online`, `idle`, `busy`, `offline` or `disabled`."""

    worker_id: str
    at: Time
    status: str
    name: str | None = None
    was: str | None = None
