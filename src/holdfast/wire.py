"""What goes over HTTP: every body and every answer, once for servers and clients. camelCase out; in, both cases."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Time = Annotated[datetime, Meta(tz=True)]
# What follows is only told: the engine refuses the rest itself, each with a code of its own.
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 200})]
Key = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]
Priority = Annotated[int, Meta(extra_json_schema={"minimum": -100, "maximum": 100})]
Attempts = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})]
Seconds = Annotated[float, Meta(extra_json_schema={"minimum": 0})]


def camel(name: str) -> str:
    """`lease_seconds` is `leaseSeconds` over HTTP."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a client sends. An unknown field is refused: it may be a misspelt one."""


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a server sends; what has nothing to say is left out."""


# -- the control plane ----------------------------------------------------------------------------------------


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
    created_at: Time
    updated_at: Time
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
    at: Time
    verb: str
    job_type: str | None = None
    status: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    reason: str | None = None
    percent: float | None = None
    step: str | None = None
    counters: dict[str, Any] | None = None


class OperatorEvent(Answer):
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
    queue: str | None = None
    status: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    reason: str | None = None
    worker_id: str | None = None
    percent: float | None = None
    step: str | None = None
    data: Any = None


class WorkerEvent(Answer):
    """A worker is `online`, `idle`, `busy`, `offline` or `disabled` from now on."""

    worker_id: str
    at: Time
    status: str
    name: str | None = None
    was: str | None = None


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
    server_time: Time
    lease_expires_at: dict[str, Time]


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
    started_at: Time | None = None
    completed_at: Time | None = None


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
    lease_expires_at: Time
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
    claimed_at: Time
    created_at: Time
    run_at: Time
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
    lease_expires_at: Time
    cancel: bool


class CompleteBody(Body):
    job_id: str
    lease_token: str
    result: Any = None


class FailBody(Body):
    job_id: str
    lease_token: str
    error_code: Name
    message: str = ""
    context: dict[str, Any] | None = None
    retry_after_seconds: Seconds | None = None
    permanent: bool = False


class ReleaseBody(Body):
    job_id: str
    lease_token: str
    delay_seconds: Seconds = 0


class RejectBody(Body):
    job_id: str
    lease_token: str
    error_code: Name
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
    lease_expires_at: Time | None = None
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


# -- health ---------------------------------------------------------------------------------------------------


class Alive(Answer):
    status: str


class StorageView(Answer):
    total_bytes: int
    free_bytes: int


class JobCounts(Answer):
    """Each up to 10,000. `waiting` could run now; `later` wait for their time; `died` in the last hour."""

    waiting: int
    later: int
    running: int
    died: int


class Health(Answer):
    """`status` is `ok` or `down`. Numbers are those of the last time that the database answered."""

    status: str
    database: str
    checked_at: Time | None = None
    active_workers: int | None = None
    pending_jobs: int | None = None
    jobs: JobCounts | None = None
    storage: StorageView | None = None


# -- the admin API --------------------------------------------------------------------------------------------


class Nothing(Body):
    """A route that takes no such thing; what is said all the same is refused."""


class JobFilter(Body):
    """Which jobs; everything given must hold. `state` takes stored states and statuses, with commas between them."""

    tenant: str | None = None
    state: str | None = None
    job_type: str | None = None
    queue: str | None = None
    tag: str | None = None
    error_code: str | None = None
    created_after: Time | None = None
    created_before: Time | None = None


class AdminJobsQuery(JobFilter):
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class AdminJobQuery(Body):
    """`payload` asks for what the job carries, too; it takes a scope of its own, and is written into the audit."""

    payload: bool = False


class EventsQuery(Body):
    after: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ReasonQuery(Body):
    reason: str | None = None


class LeaseView(Answer):
    """Who holds a job; never the token, which would let its reader write."""

    worker_id: str
    expires_at: Time
    instance_id: str | None = None


class AdminProgress(Answer):
    percent: float | None = None
    step: str | None = None
    eta_at: Time | None = None


class JobContents(Answer):
    """What a job carries, which operators see only when they ask for it."""

    payload: Any
    checkpoint: Any
    result: Any


class AdminJob(Answer):
    """A job as operators see it. `state` is its lifecycle's own word, `storedState` the one that filters take."""

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
    lease: LeaseView | None = None
    last_worker_id: str | None = None
    progress: AdminProgress | None = None
    counters: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    idempotency_key: str | None = None
    tags: list[str] = []
    trace: dict[str, str] | None = None
    partition_key: str | None = None
    redrive_of: str | None = None
    root_id: str | None = None
    parent_id: str | None = None


class AdminJobWhole(AdminJob):
    """One job, with its parts, the jobs that were made of it, and the policy it was created under."""

    redriven_as: list[str] = []
    parts: list[PartView] = []
    policy: dict[str, Any] = {}
    contents: JobContents | None = None


class AdminJobPage(Answer):
    jobs: list[AdminJob]
    next_cursor: str | None


class AttemptView(Answer):
    """One execution that has ended."""

    attempt: int
    epoch: int
    worker_id: str
    started_at: Time
    ended_at: Time
    outcome: str
    state: str
    instance_id: str | None = None
    reason: str | None = None
    error: dict[str, Any] | None = None


class AttemptsAnswer(Answer):
    attempts: list[AttemptView]


class AdminEvent(Answer):
    """One line of a job's history, whole; `from` and `to` are the lifecycle's own words."""

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


class AdminEventsAnswer(Answer):
    """`next` is the `after` of the page behind."""

    events: list[AdminEvent]
    next: int | None


class ClauseView(Answer):
    name: str
    holds: bool
    says: str


class WhyAnswer(Answer):
    """Why a job does not run now: the first condition that does not hold is the answer."""

    job_id: str
    answer: str
    clauses: list[ClauseView]


class JobMoved(Answer):
    job_id: str
    status: str
    state: str


class RedriveBody(Body):
    payload: dict[str, Any] | None = None
    idempotency_key: str | None = None


class Redriven(Answer):
    """The new job that was made of a finished one."""

    job_id: str
    status: str
    redrive_of: str


class BulkBody(JobFilter):
    """Nothing happens until `dryRun` is false. A call handles at most `limit` jobs, the newest first."""

    dry_run: bool = True
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: str | None = None


class BulkCancelBody(BulkBody):
    reason: str = "canceled"


class BulkRedriveBody(BulkBody):
    """`ratePerSecond` spreads when the new jobs may start; `again` takes those, too, that were redriven before."""

    rate_per_second: Annotated[float, Meta(ge=0.01, le=1_000_000)] | None = None
    again: bool = False


class BulkJob(Answer):
    job_id: str
    outcome: str
    new_job_id: str | None = None
    code: str | None = None
    message: str | None = None


class BulkAnswer(Answer):
    """`matched` are all that the filter finds now; the other numbers are of this call, or of what it would do."""

    dry_run: bool
    matched: int
    done: int
    skipped: int
    refused: int
    jobs: list[BulkJob]
    next_cursor: str | None


class QueueView(Answer):
    tenant: str
    queue: str
    jobs: dict[str, int]
    paused: bool
    oldest_waiting_at: Time | None = None
    paused_at: Time | None = None
    paused_by: str | None = None


class QueuesAnswer(Answer):
    queues: list[QueueView]


class TenantQuery(Body):
    tenant: str = "default"


class QueueMoved(Answer):
    tenant: str
    queue: str
    paused: bool


class WorkerView(Answer):
    """`status` is what people want to know: `disabled` is an operator's word, the others what the heartbeats say."""

    worker_id: str
    kind: str
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


class WorkersAnswer(Answer):
    workers: list[WorkerView]


class HeldJob(Answer):
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
    """With what it holds: the first hundred jobs, the oldest first."""

    jobs: list[HeldJob] = []


class KeyIntent(Body):
    kind: Literal["client", "worker", "admin"] = "client"
    tenant: str = "default"
    name: str | None = None
    scopes: list[str] | None = None
    queues: list[str] | None = None
    worker_id: str | None = None
    expires_in_seconds: float | None = None
    rate_per_second: float | None = None


class KeyView(Answer):
    """All that is known of a key, except what would let anybody use it."""

    key_id: str
    kind: str
    tenant: str
    status: str
    scopes: list[str]
    created_at: Time
    name: str | None = None
    queues: list[str] | None = None
    worker_id: str | None = None
    rate_per_second: float | None = None
    expires_at: Time | None = None
    revoked_at: Time | None = None
    used_at: Time | None = None


class KeysAnswer(Answer):
    keys: list[KeyView]


class KeyIssued(Answer):
    """`apiKey` is shown here and nowhere else: keep it now."""

    key: KeyView
    api_key: str


class RotateQuery(Body):
    overlap_seconds: Annotated[float, Meta(ge=0, le=10**9)] = 86_400


class LifecycleView(Answer):
    name: str
    about: str
    words: dict[str, str]
    moves: list[str]
    accept_separately: bool
    policy: dict[str, Any]
    mermaid: str


class LifecyclesAnswer(Answer):
    lifecycles: list[LifecycleView]


class SettingView(Answer):
    name: str
    value: Any
    origin: str
    variable: str


class SettingsAnswer(Answer):
    settings: list[SettingView]


class AuditQuery(Body):
    cursor: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class AuditLine(Answer):
    """What somebody did. `digest` covers the line and the digest of the line before, which is `previous`."""

    seq: int
    at: Time
    actor: str
    action: str
    subject: str | None
    detail: Any
    previous: str
    digest: str


class AuditAnswer(Answer):
    lines: list[AuditLine]
    next_cursor: int | None


class VerifyQuery(Body):
    """What an earlier verification answered, kept elsewhere: that line must still be there as it was."""

    seq: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    digest: str | None = None


class VerifyAnswer(Answer):
    """`seq` and `digest` are those of the last line that is right; `wrong` is the first that is not, and `why`."""

    valid: bool
    seq: int
    digest: str
    wrong: int | None = None
    why: str | None = None


# -- webhooks -------------------------------------------------------------------------------------------------


class WebhookSubscription(Body):
    """Who wants to be told. Without `events`, of every end; without `jobTypes` or `queues`, of all of them."""

    url: str
    name: str | None = None
    tenant: str = "default"
    events: list[str] | UnsetType = UNSET
    job_types: list[str] | None = None
    queues: list[str] | None = None


class WebhookChange(Body):
    """What is not named stays as it is. `dropOldSecrets`: from now on only the newest secret signs."""

    url: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    events: list[str] | UnsetType = UNSET
    job_types: list[str] | UnsetType | None = UNSET
    queues: list[str] | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    drop_old_secrets: bool = False


class WebhookView(Answer):
    """`secrets`: how many sign now; more than one while a new one takes over."""

    webhook_id: str
    tenant: str
    url: str
    events: list[str]
    enabled: bool
    created_at: Time
    secrets: int
    name: str | None = None
    job_types: list[str] | None = None
    queues: list[str] | None = None
    disabled_reason: str | None = None
    failing_since: Time | None = None


class WebhooksAnswer(Answer):
    webhooks: list[WebhookView]


class WebhookSigned(Answer):
    """`secret` is shown here and nowhere else: keep it now."""

    webhook: WebhookView
    secret: str


class DeliveriesQuery(Body):
    state: Literal["pending", "delivered", "failed"] | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class TryView(Answer):
    at: Time
    ms: int
    status: int | None = None
    error: str | None = None
    excerpt: str | None = None


class DeliveryView(Answer):
    """A message, and the last times that it was sent. Its id is the header `webhook-id`."""

    delivery_id: str
    webhook_id: str
    event: str
    state: str
    tries: int
    created_at: Time
    message: Any
    log: list[TryView]
    next_try_at: Time | None = None
    finished_at: Time | None = None


class DeliveriesAnswer(Answer):
    deliveries: list[DeliveryView]
    next_cursor: str | None


class WebhookData(Answer):
    """What a message says of a job. `state` is its lifecycle's own word, `seq` the event's number in its history."""

    job_id: str
    job_type: str
    queue: str
    status: str
    state: str
    seq: int
    error: str | None = None


class WebhookMessage(Answer):
    """What is sent to a webhook, signed as Standard Webhooks says."""

    type: str
    timestamp: Time
    data: WebhookData


# -- errors ---------------------------------------------------------------------------------------------------


class Problem(Answer):
    """RFC 9457. `code` is stable; `detail` is for people; some problems say more in further fields."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
