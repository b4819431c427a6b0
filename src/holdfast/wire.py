"""What goes over HTTP: every body and every answer, once for servers and clients. camelCase out; in, both cases."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a client sends. An unknown field is refused: it may be a misspelt one."""


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a server sends; what has nothing to say is left out."""


# -- the control plane ----------------------------------------------------------------------------------------


class JobIntent(Body):
    """A job to be done."""

    job_type: str
    payload: dict[str, Any]
    idempotency_key: str | None = None
    queue: str | None = None
    priority: int = 0
    run_at: datetime | None = None
    delay_seconds: float | None = None
    max_attempts: int | None = None
    tags: list[str] = []


class JobIntents(Body):
    jobs: list[JobIntent]


class JobAccepted(Answer):
    job_id: str
    status: str


class JobsAccepted(Answer):
    jobs: list[JobAccepted]


class ProgressView(Answer):
    percent: float | None = None
    step: str | None = None
    eta_seconds: float | None = None


class ErrorView(Answer):
    code: str
    message: str


class JobView(Answer):
    """What a client may know of a job: never its payload, attempts, worker, lease or traces."""

    job_id: str
    job_type: str
    status: str
    created_at: datetime
    updated_at: datetime
    progress: ProgressView | None = None
    counters: dict[str, Any] | None = None
    result: Any = None
    error: ErrorView | None = None


class JobPage(Answer):
    jobs: list[JobView]
    next_cursor: str | None


class JobEvent(Answer):
    """One line of a job's history as a client sees it; `from` and `to` are the lifecycle's own words."""

    job_id: str
    seq: int
    at: datetime
    verb: str
    status: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    reason: str | None = None
    percent: float | None = None
    step: str | None = None


# -- the worker API -------------------------------------------------------------------------------------------


class WorkerRegistration(Body):
    name: str | None = None
    worker_type: str = "remote"
    capabilities: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    tenants: list[str] | None = None
    queues: list[str] | None = None


class WorkerRegistered(Answer):
    worker_id: str
    api_key: str


class HeldLease(Body):
    job_id: str
    lease_token: str


class HeartbeatBody(Body):
    status: str = "active"
    instance_id: str | None = None
    slots: int | None = None
    leases: list[HeldLease] = []


class HeartbeatAnswer(Answer):
    lost: list[str]
    cancel: list[str]
    drain: bool
    server_time: datetime
    lease_expires_at: dict[str, datetime]


class ClaimBody(Body):
    queues: list[str] | None = None
    job_types: list[str] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=30)] = 0
    request_id: str | None = None
    instance_id: str | None = None


class PartView(Answer):
    name: str
    status: str
    percent: float | None = None
    total: int | None = None
    done: int | None = None
    error: str | None = None
    data: Any = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class Clocks(Answer):
    """The times that a worker itself must keep."""

    lease_seconds: float
    heartbeat_seconds: float
    cancel_grace_seconds: float
    timeout_seconds: float | None = None
    no_progress_seconds: float | None = None
    max_runtime_seconds: float | None = None


class ClaimedJob(Answer):
    job_id: str
    job_type: str
    payload: dict[str, Any]
    attempt: int
    lease_token: str
    lease_expires_at: datetime
    checkpoint: Any
    parts: list[PartView]
    tenant: str
    queue: str
    lifecycle: str
    priority: int
    epoch: int
    max_attempts: int
    lost: int
    max_lost: int
    claimed_at: datetime
    created_at: datetime
    run_at: datetime
    clocks: Clocks
    tags: list[str] = []
    trace: dict[str, str] | None = None


class ClaimAnswer(Answer):
    jobs: list[ClaimedJob]


class PartReport(Body):
    name: str
    status: str = "pending"
    percent: float | None = None
    total: int | None = None
    done: int | None = None
    error: str | None = None
    data: Any = None


class ProgressBody(Body):
    job_id: str
    lease_token: str
    current_step: str | None = None
    progress_percent: float | None = None
    counters: dict[str, Any] | None = None
    eta_seconds: float | None = None
    parts: list[PartReport] = []
    checkpoint: Any = None


class ProgressAnswer(Answer):
    job_id: str
    lease_expires_at: datetime
    cancel: bool


class CompleteBody(Body):
    job_id: str
    lease_token: str
    result: Any = None


class FailBody(Body):
    job_id: str
    lease_token: str
    error_code: str
    message: str = ""
    context: dict[str, Any] | None = None
    retry_after_seconds: float | None = None
    permanent: bool = False


class ReleaseBody(Body):
    job_id: str
    lease_token: str
    delay_seconds: float = 0


class RejectBody(Body):
    job_id: str
    lease_token: str
    error_code: str
    message: str = ""


class SettledAnswer(Answer):
    """Where a job went: `status` as clients see it, `state` in its lifecycle's own word."""

    job_id: str
    status: str
    state: str


class ReportsBody(Body):
    """Many words at once, for workers that hold many jobs: each is settled by itself."""

    progress: list[ProgressBody] = []
    complete: list[CompleteBody] = []
    fail: list[FailBody] = []
    release: list[ReleaseBody] = []
    reject: list[RejectBody] = []


class Report(Answer):
    """The answer to one of many: where the job went, or the problem's code, and what it says."""

    job_id: str
    status: str | None = None
    state: str | None = None
    lease_expires_at: datetime | None = None
    cancel: bool = False
    code: str | None = None
    detail: str | None = None
    reassigned: bool = False


class ReportsAnswer(Answer):
    progress: list[Report]
    complete: list[Report]
    fail: list[Report]
    release: list[Report]
    reject: list[Report]


# -- errors ---------------------------------------------------------------------------------------------------


class Problem(Answer):
    """RFC 9457. `code` is stable; `detail` is for people; some problems say more in further fields."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
