"""Converts between the bodies of the HTTP API and the types that clients and workers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from holdfast import wire
from holdfast.clock import FIRST
from holdfast.errors import Invalid, JobFailed, NotFound
from holdfast.ids import Ids
from holdfast.lifecycle import Policy, State
from holdfast.model import Lease, Part, PartStatus
from holdfast.model.job import PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX
from holdfast.model.json import encode, encode_object
from holdfast.model.limits import units_of
from holdfast.model.reports import Advanced, Settled, Withdrawn

FINAL = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
ANY_BYTES = 2**20  # the server has limits of its own
MESSAGE_MAX = 100_000

_Report = TypeVar("_Report", bound=msgspec.Struct)

# The worker runtime ignores which state it is.
_STATE = {
    "PENDING": State.QUEUED,
    "RUNNING": State.RUNNING,
    "COMPLETED": State.SUCCEEDED,
    "FAILED": State.DEAD,
    "CANCELED": State.CANCELED,
    "REJECTED": State.REJECTED,
}


# -- jobs of a client -------------------------------------------------------------------------------------------------


def intent_of(job: Mapping[str, Any], ids: Ids) -> wire.JobIntent:
    """From a mapping with the arguments of `create`; a job without an idempotency key gets one."""
    made = {"idempotency_key": job.get("idempotency_key") or ids.token(), "limits": units_of(job.get("limits"))}
    try:
        return wire.JobIntent(**{**job, **made, "payload": json_payload(job.get("payload", {}))})
    except TypeError as error:
        raise Invalid(f"invalid job: {error}; it takes the arguments of `create`", code="invalid_body") from None


def json_payload(payload: dict[str, Any]) -> Any:
    """As JSON; values that JSON cannot represent are rejected here."""
    return msgspec.Raw(encode_object(payload, "payload", max_bytes=PAYLOAD_BYTES_MAX).encode())


def path_of(job_id: str) -> str:
    """Validate an id, so that it cannot change the path."""
    if not job_id or not all(letter.isalnum() or letter == "-" for letter in job_id):
        raise NotFound(f"{job_id!r:.80} is not a job id", code="job_not_found")
    return f"/jobs/{job_id}"


def result_of(view: wire.JobView) -> Any:
    """Of a job that has ended: its result, or `JobFailed`."""
    if view.status == "COMPLETED":
        return view.result
    error = view.error or wire.ErrorView(view.status.lower(), "")
    raise JobFailed(view.job_id, view.job_type, view.status, code=error.code, message=error.message)


# -- leases and reports of a worker ------------------------------------------------------------------------------------


def lease_of(job: wire.ClaimedJob) -> Lease:
    return Lease(
        id=job.job_id,
        token=job.lease_token,
        tenant=job.tenant,
        type=job.job_type,
        queue=job.queue,
        lifecycle=job.lifecycle,
        priority=job.priority,
        epoch=job.epoch,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        lost=job.lost,
        expires_at=job.lease_expires_at,
        claimed_at=job.claimed_at,
        created_at=job.created_at,
        run_at=job.run_at,
        payload=job.payload,
        checkpoint=job.checkpoint,
        tags=job.tags,
        trace=job.trace,
        policy=0,  # known to the server only
    )


def policy_of(job: wire.ClaimedJob) -> Policy:
    """The part of the policy that the worker enforces."""
    return Policy(max_lost=job.max_lost, **msgspec.structs.asdict(job.clocks))


def part_of(view: wire.PartView) -> Part:
    return Part(**{**msgspec.structs.asdict(view), "status": PartStatus(view.status)})


def sendable(report: _Report) -> _Report:
    """Ready to send: values are encoded as JSON, and values that JSON cannot represent are rejected here. Text is
    truncated and made valid UTF-8, so that the error of a job does not make its report fail, too."""
    changes: dict[str, Any] = {}
    for name in _checked(type(report)):
        if (value := getattr(report, name)) is not None:
            changes[name] = _CHECKS[name](value)
    return msgspec.structs.replace(report, **changes) if changes else report


@cache
def _checked(kind: type[msgspec.Struct]) -> list[str]:
    return [name for name in kind.__struct_fields__ if name in _CHECKS]


def _json(value: Any, what: str, max_bytes: int = ANY_BYTES) -> msgspec.Raw:
    return msgspec.Raw(encode(value, what, max_bytes=max_bytes).encode())


def _text(value: str) -> str:
    return value[:MESSAGE_MAX].encode("utf-8", "replace").decode()


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "result": lambda value: _json(value, "result", RESULT_BYTES_MAX),
    "context": lambda value: _json(value, "error"),
    "counters": lambda value: _json(value, "counters"),
    "checkpoint": lambda value: _json(value, "checkpoint"),
    "data": lambda value: _json(value, "part"),
    "message": _text,
    "error": _text,
    "parts": lambda parts: [sendable(part) for part in parts],
}


def settled_of(report: wire.ReportResult) -> Settled:
    return Settled(report.job_id, _STATE.get(report.status or "", State.QUEUED))


def withdrawn_of(answer: wire.WithdrawnResponse) -> Withdrawn:
    return Withdrawn(answer.job_id, _STATE.get(answer.status, State.QUEUED), answer.asked)


def advanced_of(report: wire.ReportResult) -> Advanced:
    return Advanced(report.job_id, report.lease_expires_at or FIRST, report.cancel)


def packed(reports: Sequence[Any], *, most: int, most_bytes: int) -> list[list[Any]]:
    """Encoded, in batches that fit into one request each."""
    batches: list[list[Any]] = []
    size = 0
    for report in reports:
        data = msgspec.json.encode(sendable(report))
        if not batches or len(batches[-1]) >= most or size + len(data) > most_bytes:
            batches.append([])
            size = 0
        batches[-1].append(msgspec.Raw(data))
        size += len(data) + 1
    return batches
