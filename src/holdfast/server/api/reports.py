"""Converts reports of workers to engine calls, and the results to response bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from holdfast import wire
from holdfast.batching import each
from holdfast.errors import HoldfastError, Invalid, LeaseLost, StoreError
from holdfast.lifecycle import STATUS
from holdfast.model.reports import Advanced, Settled
from holdfast.server.policy_cache import PolicyCache

REPORTS_MAX = 1000  # in one request

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def check_report_size(body: wire.ReportsBody) -> None:
    count = sum(len(getattr(body, verb)) for verb in body.__struct_fields__)
    if count > REPORTS_MAX:
        raise Invalid(
            f"a request has at most {REPORTS_MAX} reports, got {count}; send several requests",
            code="report_too_large",
            limit=REPORTS_MAX,
        )


async def send_each(
    send: Callable[[list[Item]], Awaitable[Sequence[Answer | HoldfastError]]], items: list[Item]
) -> list[Answer | HoldfastError]:
    """A result or an error for each. A database error fails the whole request: the worker repeats it."""
    answers = await each(send, items) if items else []
    for answer in answers:
        if isinstance(answer, StoreError):
            raise answer
    return answers


def advanced(job_id: str, answer: Advanced | HoldfastError) -> wire.ReportResult:
    if isinstance(answer, HoldfastError):
        return refused(job_id, answer)
    return wire.ReportResult(job_id, lease_expires_at=answer.expires_at, cancel=answer.cancel_requested)


async def settled(
    policies: PolicyCache, job_ids: list[str], answers: Sequence[Settled | HoldfastError]
) -> list[wire.ReportResult]:
    went = iter(await settled_responses(policies, [answer for answer in answers if isinstance(answer, Settled)]))
    return [
        refused(job_id, answer)
        if isinstance(answer, HoldfastError)
        else wire.ReportResult(**msgspec.structs.asdict(next(went)))
        for job_id, answer in zip(job_ids, answers, strict=True)
    ]


async def settled_responses(policies: PolicyCache, answers: Sequence[Settled]) -> list[wire.SettledResponse]:
    known = await policies.of_jobs({answer.id for answer in answers})
    return [
        wire.SettledResponse(answer.id, STATUS[answer.state], known[answer.id].machine.words[answer.state])
        for answer in answers
    ]


def lost_in(answer: wire.ReportsResponse) -> int:
    """How many reports were rejected because the lease was lost."""
    lists: list[list[wire.ReportResult]] = [getattr(answer, verb) for verb in answer.__struct_fields__]
    return sum(report.code == LeaseLost.code for said in lists for report in said)


def refused(job_id: str, error: HoldfastError) -> wire.ReportResult:
    return wire.ReportResult(
        job_id, code=error.code, detail=error.message, reassigned=error.fields.get("reassigned") is True
    )
