"""A worker's own words and those of the wire, each made from the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import wire
from holdfast.clock import FIRST
from holdfast.lifecycle import Policy, State
from holdfast.model import Lease, Part, PartStatus
from holdfast.model.job import RESULT_BYTES_MAX
from holdfast.model.json import encode
from holdfast.model.reports import Advanced, Done, Failure, Freed, Held, Progress, Settled, Verdict, Withdrawn

ANY_BYTES = 2**20  # the server has limits of its own
MESSAGE_MAX = 100_000

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


def held_lease(held: Held) -> wire.HeldLease:
    return wire.HeldLease(held.id, held.token)


def complete_body(done: Done) -> wire.CompleteBody:
    return wire.CompleteBody(done.id, done.token, _json(done.result, "result", RESULT_BYTES_MAX))


def fail_body(failure: Failure) -> wire.FailBody:
    return wire.FailBody(
        job_id=failure.id,
        lease_token=failure.token,
        error_code=failure.code,
        message=_shown(failure.message),
        context=_json(failure.context, "error", ANY_BYTES),
        retry_after_seconds=failure.retry_after_seconds,
        permanent=failure.permanent,
    )


def release_body(freed: Freed) -> wire.ReleaseBody:
    default = Freed(freed.id, freed.token, freed.delay_seconds, children=freed.children)
    snoozed = None if freed.reason == default.reason else freed.snoozed  # said only where the delay does not say it
    return wire.ReleaseBody(freed.id, freed.token, freed.delay_seconds, snoozed, freed.children)


def reject_body(verdict: Verdict) -> wire.RejectBody:
    return wire.RejectBody(
        verdict.id,
        verdict.token,
        verdict.code,
        _shown(verdict.message),
        _json(verdict.context, "error", ANY_BYTES),
    )


def progress_body(report: Progress) -> wire.ProgressBody:
    return wire.ProgressBody(
        job_id=report.id,
        lease_token=report.token,
        current_step=report.step,
        progress_percent=report.percent,
        counters=_json(report.counters, "counters", ANY_BYTES),
        eta_seconds=report.eta_seconds,
        parts=[_part_report(part) for part in report.parts],
        checkpoint=_json(report.checkpoint, "checkpoint", ANY_BYTES),
    )


def _part_report(part: Part) -> wire.PartReport:
    return wire.PartReport(
        name=part.name,
        status=str(part.status),
        percent=part.percent,
        total=part.total,
        done=part.done,
        error=None if part.error is None else _shown(part.error),
        data=_json(part.data, "part", ANY_BYTES),
        reopen=part.reopen,
    )


def settled_of(report: wire.Report) -> Settled:
    return Settled(report.job_id, _STATE.get(report.status or "", State.QUEUED))


def withdrawn_of(answer: wire.WithdrawnAnswer) -> Withdrawn:
    return Withdrawn(answer.job_id, _STATE.get(answer.status, State.QUEUED), answer.asked)


def advanced_of(report: wire.Report) -> Advanced:
    return Advanced(report.job_id, report.lease_expires_at or FIRST, report.cancel)


def packed(words: Sequence[Any], *, most: int, most_bytes: int) -> list[list[Any]]:
    """Encoded, and in portions that a server takes as one body each."""
    portions: list[list[Any]] = []
    size = 0
    for word in words:
        data = msgspec.json.encode(word)
        if not portions or len(portions[-1]) >= most or size + len(data) > most_bytes:
            portions.append([])
            size = 0
        portions[-1].append(msgspec.Raw(data))
        size += len(data) + 1
    return portions


def _json(value: Any, what: str, max_bytes: int) -> Any:
    """Encoded once; what JSON does not have is refused here, before it is lost on the way."""
    return None if value is None else msgspec.Raw(encode(value, what, max_bytes=max_bytes).encode())


def _shown(message: str) -> str:
    """What broke a job must not break its report too."""
    return message[:MESSAGE_MAX].encode("utf-8", "replace").decode()
