"""Request and response bodies of the worker API. Those of reports are in `model/reports.py`."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from holdfast.model.reports import Complete, Fail, HeldLease, Progress, Rejection, Release
from holdfast.wire.base import Body, ResponseBody, Time


class WorkerRegistration(Body):
    name: str | None = None
    worker_type: str = "remote"
    capabilities: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    tenants: list[str] | None = None
    queues: list[str] | None = None


class WorkerRegistered(ResponseBody):
    worker_id: str
    api_key: str


class HeartbeatBody(Body):
    status: str = "active"
    instance_id: str | None = None
    slots: int | None = None
    leases: list[HeldLease] = []


class HeartbeatResponse(ResponseBody):
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


class PartView(ResponseBody):
    name: str
    status: str
    percent: float | None = None
    total: int | None = None
    done: int | None = None
    error: str | None = None
    data: Any = None
    started_at: Time | None = None
    completed_at: Time | None = None


class Clocks(ResponseBody):
    """Time limits that the worker has to enforce."""

    lease_seconds: float
    heartbeat_seconds: float
    cancel_grace_seconds: float
    timeout_seconds: float | None = None
    no_progress_seconds: float | None = None
    max_runtime_seconds: float | None = None


class ClaimedJob(ResponseBody):
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


class ClaimResponse(ResponseBody):
    jobs: list[ClaimedJob]


class ProgressResponse(ResponseBody):
    job_id: str
    lease_expires_at: Time
    cancel: bool


class SettledResponse(ResponseBody):
    """The job after the report: its `status` as clients see it, and its `state` in its lifecycle."""

    job_id: str
    status: str
    state: str


class WithdrawnResponse(SettledResponse):
    """The other job: its `status` as clients see it, and its `state` in its lifecycle."""

    asked: bool


class ReportsBody(Body):
    """Several reports in one request; each is applied independently."""

    progress: list[Progress] = []
    complete: list[Complete] = []
    fail: list[Fail] = []
    release: list[Release] = []
    reject: list[Rejection] = []


class ReportResult(ResponseBody):
    """The result of one report: the new state of the job, or the code and the message of an error."""

    job_id: str
    status: str | None = None
    state: str | None = None
    lease_expires_at: Time | None = None
    cancel: bool = False
    code: str | None = None
    detail: str | None = None
    reassigned: bool = False


class ReportsResponse(ResponseBody):
    progress: list[ReportResult]
    complete: list[ReportResult]
    fail: list[ReportResult]
    release: list[ReportResult]
    reject: list[ReportResult]
