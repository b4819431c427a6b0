"""A job in its three shapes: new, stored, and leased by a worker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import Invalid, InvalidField
from holdfast.lifecycle import FINAL, STATUS, State
from holdfast.model.job_type import POLICY_BYTES_MAX
from holdfast.model.json import check_object, decode, decode_or_text, encode, encode_object
from holdfast.model.limits import check_key, check_keyed_type, check_units
from holdfast.model.names import check_id, check_name, check_names, quoted
from holdfast.model.times import check_time

PAYLOAD_BYTES_MAX = 256 * 1024
RESULT_BYTES_MAX = 256 * 1024
DELAY_SECONDS_MAX = 10 * 366 * 86_400
KEY_MAX = 255


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to create. None: the default of the job type, the lifecycle or the settings."""

    type: str
    payload: dict[str, Any] = {}
    tenant: str = "default"
    lifecycle: str | None = None
    queue: str | None = None
    priority: int = 0
    run_at: datetime | None = None
    delay_seconds: float | None = None
    idempotency_key: str | None = None
    key_is_derived: bool = False  # by `derived_key`: the key alone identifies a repeated request
    max_attempts: int | None = None
    policy: dict[str, Any] | None = None
    requires: list[str] | None = None
    prefers: list[str] | None = None
    tags: list[str] = []
    partition_key: str | None = None
    limit_key: str | None = None
    fairness_key: str | None = None
    keys_are_final: bool = False  # also where they are None: they are not computed from the payload
    limits: dict[str, int] | None = None  # named limits, and the units that the job takes of each
    subject: str | None = None
    trace: dict[str, str] | None = None
    parent_id: str | None = None
    redrive_of: str | None = None
    root_id: str | None = None

    def check(self) -> None:
        """Validate all fields before anything is written."""
        check_name(self.type, "job_type")
        check_name(self.tenant, "tenant")
        if self.lifecycle is not None:
            check_name(self.lifecycle, "lifecycle")
        if self.queue is not None:
            check_name(self.queue, "queue")
        check_object(self.payload, "payload")
        if type(self.priority) is not int or not -100 <= self.priority <= 100:
            raise InvalidField(
                f"priority must be a whole number from -100 to 100, got {quoted(self.priority)}",
                field="priority",
            )
        if self.max_attempts is not None and (type(self.max_attempts) is not int or not 1 <= self.max_attempts <= 1000):
            raise InvalidField(
                "max_attempts must be a whole number from 1 to 1000 (executions in all), "
                f"got {quoted(self.max_attempts)}",
                field="max_attempts",
            )
        if self.run_at is not None or self.delay_seconds is not None:
            self._check_time()
        if self.idempotency_key is not None:
            _check_key(self.idempotency_key)
        if self.policy is not None:
            encode_object(self.policy, "policy", max_bytes=POLICY_BYTES_MAX)
        if self.trace is not None:
            _check_trace(self.trace)
        if self.tags != []:
            check_names(self.tags, "tags")
        for names, field in ((self.requires, "requires"), (self.prefers, "prefers")):
            if names is not None:
                check_names(names, field)
        if self.partition_key is not None:
            check_name(self.partition_key, "partition_key")
        if self.limit_key is not None:
            check_keyed_type(self.type)
            check_key(self.limit_key, "limit_key")
        if self.fairness_key is not None:
            check_key(self.fairness_key, "fairness_key")
        if self.limits is not None:
            check_units(self.limits)
        if self.subject is not None:
            check_name(self.subject, "subject")
        for job, field in ((self.parent_id, "parent_id"), (self.root_id, "root_id"), (self.redrive_of, "redrive_of")):
            if job is not None:
                check_id(job, field)

    def _check_time(self) -> None:
        if self.run_at is not None and self.delay_seconds is not None:
            raise InvalidField("give run_at or delay_seconds, not both", field="delay_seconds")
        delay = self.delay_seconds
        if delay is not None and (type(delay) not in (int, float) or not 0 <= delay <= DELAY_SECONDS_MAX):
            raise InvalidField(
                f"delay_seconds must be 0 to {DELAY_SECONDS_MAX} (ten years), got {quoted(delay)}",
                field="delay_seconds",
            )
        if self.run_at is not None:
            check_time(self.run_at, "run_at")

    def encoded_payload(self) -> str:
        return encode(self.payload, "payload", max_bytes=PAYLOAD_BYTES_MAX)

    def fingerprint(self) -> str:
        """A digest of the request: the same for each repeat, whatever the order of its keys.

        Defaults are left out, so that a field added later does not change the digest, and so is the trace, which is new
        in each repeat.
        """
        if self.key_is_derived:
            return hashlib.sha256(f"{self.type} {self.idempotency_key}".encode()).hexdigest()
        blank = type(self)(type="")
        sent = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) != getattr(blank, name) and name != "trace"
        }
        return hashlib.sha256(msgspec.json.encode(sent, order="sorted")).hexdigest()


def _check_trace(trace: Any) -> None:
    if not isinstance(trace, dict) or not all(type(text) is str for pair in trace.items() for text in pair):
        raise Invalid(f"trace must be an object of text by name, got {quoted(trace)}", code="trace_not_json")


def _check_key(key: Any) -> None:
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_MAX or not key.isascii() or not key.isprintable():
        raise InvalidField(f"an idempotency key is 1 to {KEY_MAX} printable ASCII characters", field="idempotency_key")


class Job(msgspec.Struct, frozen=True):
    """A stored job with all columns (`COLUMNS`)."""

    id: str
    tenant: str
    type: str
    queue: str
    lifecycle: str
    state: State
    reason: str | None
    due: bool | None
    priority: int
    version: int
    epoch: int
    attempt: int
    max_attempts: int
    failures: int
    lost: int
    run_at: datetime
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    claimed_at: datetime | None
    progress_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    lease_worker: str | None
    lease_instance: str | None
    lease_token: str | None
    lease_expires_at: datetime | None
    last_worker: str | None
    idempotency_key: str | None
    payload: Any
    result: Any
    error: Any
    step: str | None
    percent: float | None
    counters: Any
    eta_at: datetime | None
    checkpoint: Any
    tags: Any
    trace: Any
    partition_key: str | None
    limit_key: str | None
    fairness_key: str | None
    subject: str | None  # what the job is about: a video, a document, an order
    redrive_of: str | None
    root_id: str | None
    parent_id: str | None
    lane: int
    key_lane: int | None
    policy: int
    needs: list[str] | None

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Job:
        values = list(row)
        values[_STATE] = State(values[_STATE])
        values[_DUE] = None if values[_DUE] is None else bool(values[_DUE])
        for place in _JSON:
            if values[place] is not None:
                values[place] = decode_or_text(values[place])
        return cls(*values)

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def worker(self) -> str | None:
        """The worker that runs it or ran it last."""
        return self.lease_worker or self.last_worker

    @property
    def status(self) -> str:
        """The status that clients see: one of six in every lifecycle."""
        return STATUS[self.state]

    @property
    def canceled_at(self) -> datetime | None:
        return self.finished_at if self.state is State.CANCELED else None

    @property
    def partial(self) -> bool:
        """Canceled after it had started, so its reports are incomplete."""
        return self.state is State.CANCELED and self.started_at is not None

    @property
    def duration_seconds(self) -> float | None:
        """From the first start to the end, including pauses between attempts."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()

    def derived(self, now: datetime) -> str | None:
        """The derived status of claim and error, one of six; None if canceled or rejected."""
        match self.state:
            case State.SUCCEEDED:
                return "Completed"
            case State.DEAD:
                return "Failed"
            case State.CANCELED | State.REJECTED:
                return None
            case State.RUNNING:
                return "Claimed" if self.lease_expires_at is not None and self.lease_expires_at > now else "Expired"
        return "Unclaimed" if self.error is None else "Retrying"


COLUMNS = Job.__struct_fields__
_STATE, _DUE = COLUMNS.index("state"), COLUMNS.index("due")
_JSON = [
    COLUMNS.index(name) for name in ("payload", "result", "error", "counters", "checkpoint", "tags", "trace", "needs")
]


class UnreadableJob(Exception):
    """A claimed job whose row cannot be decoded."""

    def __init__(self, job_id: str, token: str, column: str, error: Exception) -> None:
        super().__init__(f"the column {column} of job {job_id} is no JSON: {error}")
        self.id, self.token = job_id, token


class Lease(msgspec.Struct, frozen=True, gc=False):  # JSON refers to nothing that contains it
    """A job that a worker holds: what it needs to run it, and the lease token for its reports."""

    id: str
    token: str
    tenant: str
    type: str
    queue: str
    lifecycle: str
    priority: int
    epoch: int
    attempt: int
    max_attempts: int
    lost: int
    expires_at: datetime
    claimed_at: datetime
    created_at: datetime
    run_at: datetime
    payload: Any
    checkpoint: Any
    tags: Any
    trace: Any
    policy: int

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Lease:
        """Raises `UnreadableJob` if a column is not JSON, as after an SQL update by hand."""
        values = list(row)
        for place in _LEASE_JSON:
            if values[place] is not None:
                try:
                    values[place] = decode(values[place])
                except msgspec.DecodeError as error:
                    raise UnreadableJob(values[_LEASE_ID], values[_LEASE_TOKEN], LEASE_COLUMNS[place], error) from error
        return cls(*values[:_LEASE])


# The columns of a lease, in the order of its fields.
LEASE_COLUMNS = (
    *("id", "lease_token", "tenant", "type", "queue", "lifecycle", "priority", "epoch", "attempt", "max_attempts"),
    *("lost", "lease_expires_at", "claimed_at", "created_at", "run_at", "payload", "checkpoint", "tags", "trace"),
    "policy",
)
_LEASE = len(LEASE_COLUMNS)
_LEASE_ID, _LEASE_TOKEN = LEASE_COLUMNS.index("id"), LEASE_COLUMNS.index("lease_token")
_LEASE_JSON = [LEASE_COLUMNS.index(name) for name in ("payload", "checkpoint", "tags", "trace")]
