"""A worker's own words and those of the wire, each made from the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from holdfast import wire
from holdfast.clock import FIRST
from holdfast.lifecycle import Policy, State
from holdfast.model import Lease, Part, PartStatus
from holdfast.model.job import RESULT_BYTES_MAX
from holdfast.model.json import encode
from holdfast.model.reports import Advanced, Settled, Withdrawn

ANY_BYTES = 2**20  # the server has limits of its own
MESSAGE_MAX = 100_000

_Report = TypeVar("_Report", bound=msgspec.Struct)

# The runtime asks no more of an answer than that it is one.
_STATE = {
    "PENDING": State.QUEUED,
    "RUNNING": State.RUNNING,
    "COMPLETED": State.SUCCEEDED,
    "FAILED": State.DEAD,
    "CANCELED": State.CANCELED,
    "REJECTED": State.REJECTED,
}


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
        policy=0,  # a number of the database's own
    )


def policy_of(job: wire.ClaimedJob) -> Policy:
    """What a worker needs to know of it; the rest is the server's."""
    return Policy(max_lost=job.max_lost, **msgspec.structs.asdict(job.clocks))


def part_of(view: wire.PartView) -> Part:
    return Part(**{**msgspec.structs.asdict(view), "status": PartStatus(view.status)})


def sendable(report: _Report) -> _Report:
    """As a server takes it: values are encoded once, and those that JSON cannot express are refused here. Text is made
    valid and cut, because what broke a job must not break its report too."""
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


def packed(words: Sequence[Any], *, most: int, most_bytes: int) -> list[list[Any]]:
    """Encoded, and in portions that a server takes as one body each."""
    portions: list[list[Any]] = []
    size = 0
    for word in words:
        data = msgspec.json.encode(sendable(word))
        if not portions or len(portions[-1]) >= most or size + len(data) > most_bytes:
            portions.append([])
            size = 0
        portions[-1].append(msgspec.Raw(data))
        size += len(data) + 1
    return portions
