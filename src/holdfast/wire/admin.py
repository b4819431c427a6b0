"""Request and response bodies of the admin API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.wire.base import Body, ResponseBody, Time
from holdfast.wire.work import PartView


class Nothing(Body):
    """No parameters: any parameter is rejected."""


class JobFilter(Body):
    """A filter: a job must match every field. `state` and `status` take several values, separated by commas."""

    tenant: str | None = None
    state: str | None = None
    status: str | None = None
    job_type: str | None = None
    queue: str | None = None
    tag: str | None = None
    subject: str | None = None
    parent_id: str | None = None
    error_code: str | None = None
    created_after: Time | None = None
    created_before: Time | None = None


class AdminJobsQuery(JobFilter):
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class AdminJobQuery(Body):
    """`payload`: also return the contents of the job. This needs a separate scope and is written to the audit log."""

    payload: bool = False


class EventsQuery(Body):
    after: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ReasonQuery(Body):
    reason: str | None = None


class LeaseView(ResponseBody):
    """The worker that holds a job, without the lease token."""

    worker_id: str
    expires_at: Time
    instance_id: str | None = None


class AdminProgress(ResponseBody):
    percent: float | None = None
    step: str | None = None
    eta_at: Time | None = None


class JobContents(ResponseBody):
    """Payload, checkpoint and result of a job; returned only on request."""

    payload: Any
    checkpoint: Any
    result: Any


class AdminJob(ResponseBody):
    """A job as operators see it. `status` is one of the six statuses that clients see, `state` the state name of its
    lifecycle, `storedState` the stored state, which is the same in every lifecycle. `derived`: Unclaimed, Claimed,
    Expired (the lease has expired), Retrying, Completed or Failed. `partial`: the job was canceled after it had
    started, so its counters, parts and checkpoint are incomplete. `durationSeconds`: from the first start to the end,
    for a job that has ended."""

    job_id: str
    tenant: str
    job_type: str
    queue: str
    lifecycle: str
    status: str
    state: str
    stored_state: str
    priority: int
    attempt: int
    max_attempts: int
    failures: int
    lost: int
    epoch: int
    version: int
    run_at: Time
    created_at: Time
    updated_at: Time
    reason: str | None = None
    started_at: Time | None = None
    claimed_at: Time | None = None
    progress_at: Time | None = None
    finished_at: Time | None = None
    cancel_requested_at: Time | None = None
    canceled_at: Time | None = None
    partial: bool = False
    duration_seconds: float | None = None
    derived: str | None = None
    lease: LeaseView | None = None
    last_worker_id: str | None = None
    progress: AdminProgress | None = None
    counters: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    idempotency_key: str | None = None
    tags: list[str] = []
    trace: dict[str, str] | None = None
    partition_key: str | None = None
    limit_key: str | None = None
    fairness_key: str | None = None
    subject: str | None = None
    redrive_of: str | None = None
    root_id: str | None = None
    parent_id: str | None = None


class AdminJobWhole(AdminJob):
    """A job with its parts, its redrives and its policy."""

    redriven_as: list[str] = []
    parts: list[PartView] = []
    policy: dict[str, Any] = {}
    contents: JobContents | None = None


class AdminJobPage(ResponseBody):
    jobs: list[AdminJob]
    next_cursor: str | None


class AttemptView(ResponseBody):
    """A finished attempt."""

    attempt: int
    epoch: int
    worker_id: str
    started_at: Time
    ended_at: Time
    outcome: str
    state: str
    worker_name: str | None = None
    instance_id: str | None = None
    reason: str | None = None
    error: dict[str, Any] | None = None


class AttemptsResponse(ResponseBody):
    attempts: list[AttemptView]


class AdminEvent(ResponseBody):
    """An event of a job with all details; `from` and `to` are state names of the lifecycle."""

    seq: int
    at: Time
    verb: str
    attempt: int
    epoch: int
    actor: str
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    worker_id: str | None = None
    reason: str | None = None
    step: str | None = None
    percent: float | None = None
    data: Any = None


class AdminEventsResponse(ResponseBody):
    """`next` is the `after` of the next page."""

    events: list[AdminEvent]
    next: int | None


class ClauseView(ResponseBody):
    name: str
    holds: bool
    says: str


class WhyResponse(ResponseBody):
    """Why a job is not running: `answer` is the first condition that does not hold."""

    job_id: str
    answer: str
    clauses: list[ClauseView]


class JobMoved(ResponseBody):
    job_id: str
    status: str
    state: str


class RedriveBody(Body):
    payload: dict[str, Any] | None = None
    idempotency_key: str | None = None


class Redriven(ResponseBody):
    """The new job that a redrive created."""

    job_id: str
    status: str
    redrive_of: str


class BulkBody(JobFilter):
    """Nothing is changed unless `dryRun` is false. A request handles at most `limit` jobs, newest first."""

    dry_run: bool = True
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: str | None = None


class BulkCancelBody(BulkBody):
    reason: str = "canceled"


class BulkRedriveBody(BulkBody):
    """`ratePerSecond` spreads the start of the new jobs; `again` includes jobs that were redriven before."""

    rate_per_second: Annotated[float, Meta(ge=0.01, le=1_000_000)] | None = None
    again: bool = False


class BulkJob(ResponseBody):
    job_id: str
    outcome: str
    new_job_id: str | None = None
    code: str | None = None
    message: str | None = None


class BulkResponse(ResponseBody):
    """`matched` counts all jobs that match the filter; the other numbers are of this request or dry run."""

    dry_run: bool
    matched: int
    done: int
    skipped: int
    refused: int
    jobs: list[BulkJob]
    next_cursor: str | None


class QueueView(ResponseBody):
    tenant: str
    queue: str
    jobs: dict[str, int]
    paused: bool
    oldest_waiting_at: Time | None = None
    paused_at: Time | None = None
    paused_by: str | None = None


class QueuesResponse(ResponseBody):
    queues: list[QueueView]


class TenantQuery(Body):
    tenant: str = "default"


class QueueMoved(ResponseBody):
    tenant: str
    queue: str
    paused: bool


class ScaleQuery(Body):
    """`queue`: only these queues, separated by commas."""

    queue: str | None = None


class LoadView(ResponseBody):
    """`backlog`: jobs that can run now; `later`: scheduled jobs. `busySlots`: one per running job. `slotsWanted`:
    busy slots plus one per job in the backlog."""

    oldest_wait_seconds: float
    backlog: int
    later: int
    busy_slots: int
    slots_wanted: int


class ScaleResponse(ResponseBody):
    """`slots`: of all live workers. An autoscaler reads a number by its path, such as `total.oldestWaitSeconds` or
    `queues.mail.backlog`."""

    counted_at: Time
    slots: int
    total: LoadView
    queues: dict[str, LoadView]


class WorkerView(ResponseBody):
    """`status`: `disabled` by an operator, `offline` without heartbeats, else `busy` or `idle`. `currentJobId`: the job
    that the worker has held longest."""

    worker_id: str
    worker_type: str
    status: str
    enabled: bool
    liveness: str
    holds: int
    registered_at: Time
    heartbeat_seconds: float
    offline_seconds: float
    name: str | None = None
    tenants: list[str] | None = None
    capabilities: dict[str, Any] = {}
    offers: list[str] = []
    metadata: dict[str, Any] = {}
    job_types: list[str] | None = None
    slots: int | None = None
    last_heartbeat_at: Time | None = None
    current_job_id: str | None = None


class WorkersResponse(ResponseBody):
    workers: list[WorkerView]


class HeldJob(ResponseBody):
    job_id: str
    job_type: str
    queue: str
    tenant: str
    attempt: int
    claimed_at: Time
    expires_at: Time
    instance_id: str | None = None
    percent: float | None = None
    step: str | None = None


class WorkerWhole(WorkerView):
    """A worker with the first 100 jobs that it holds, oldest first."""

    jobs: list[HeldJob] = []


class KeyIntent(Body):
    kind: Literal["client", "worker", "admin"] = "client"
    tenant: str = "default"
    name: str | None = None
    subject: str | None = None
    scopes: list[str] | None = None
    queues: list[str] | None = None
    worker_id: str | None = None
    expires_in_seconds: float | None = None
    rate_per_second: float | None = None


class KeyView(ResponseBody):
    """A key without its secret."""

    key_id: str
    kind: str
    tenant: str
    status: str
    scopes: list[str]
    created_at: Time
    name: str | None = None
    subject: str | None = None
    queues: list[str] | None = None
    worker_id: str | None = None
    rate_per_second: float | None = None
    expires_at: Time | None = None
    revoked_at: Time | None = None
    used_at: Time | None = None


class KeysResponse(ResponseBody):
    keys: list[KeyView]


class KeyIssued(ResponseBody):
    """`apiKey` is returned only here: store it now."""

    key: KeyView
    api_key: str


class SignIn(Body):
    key: str


class SessionView(ResponseBody):
    """A browser session. Send `csrfToken` in `X-CSRF-Token` with each unsafe request."""

    key_id: str
    kind: str
    tenant: str
    subject: str
    scopes: list[str]
    csrf_token: str
    expires_at: Time


class RotateQuery(Body):
    overlap_seconds: Annotated[float, Meta(ge=0, le=10**9)] = 86_400


class LifecycleView(ResponseBody):
    name: str
    about: str
    words: dict[str, str]
    moves: list[str]
    accept_separately: bool
    policy: dict[str, Any]
    mermaid: str


class LifecyclesResponse(ResponseBody):
    lifecycles: list[LifecycleView]


class SettingView(ResponseBody):
    name: str
    value: Any
    origin: str
    variable: str


class SettingsResponse(ResponseBody):
    settings: list[SettingView]


class AuditQuery(Body):
    cursor: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class AuditLine(ResponseBody):
    """An entry of the audit log. `digest` covers the entry and the digest of the entry before it, `previous`."""

    seq: int
    at: Time
    actor: str
    action: str
    subject: str | None
    detail: Any
    previous: str
    digest: str


class AuditResponse(ResponseBody):
    lines: list[AuditLine]
    next_cursor: int | None


class VerifyQuery(Body):
    """`seq` and `digest` of an earlier verification: that entry must still exist unchanged."""

    seq: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    digest: str | None = None


class VerifyResponse(ResponseBody):
    """`seq` and `digest` of the last valid entry; `wrong` is the first invalid entry, `why` the reason."""

    valid: bool
    seq: int
    digest: str
    wrong: int | None = None
    why: str | None = None
