"""What a worker says about its jobs, from the words of the wire to the engine's, and the answers back again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from holdfast import wire
from holdfast.batching import each
from holdfast.errors import HoldfastError, Invalid, LeaseLost, StoreError
from holdfast.lifecycle import STATUS
from holdfast.model.reports import Advanced, Settled
from holdfast.server.policy_cache import PolicyCache

WORDS_MAX = 1000  # in one report

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class NamedReport(Protocol):
    """What is said of a job."""

    @property
    def id(self) -> str: ...


def check_number_of_words(body: wire.ReportsBody) -> None:
    said = sum(len(getattr(body, verb)) for verb in body.__struct_fields__)
    if said > WORDS_MAX:
        raise Invalid(
            f"one report says at most {WORDS_MAX} things, got {said}; send several",
            code="report_too_large",
            limit=WORDS_MAX,
        )


async def told(
    send: Callable[[list[Item]], Awaitable[Sequence[Answer | HoldfastError]]], items: list[Item]
) -> list[Answer | HoldfastError]:
    """An answer or a refusal for each. Trouble with the database is one answer for all: the worker says it again."""
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
    snapshots: PolicyCache, job_ids: list[str], answers: Sequence[Settled | HoldfastError]
) -> list[wire.ReportResult]:
    went = iter(await went_to(snapshots, [answer for answer in answers if isinstance(answer, Settled)]))
    return [
        refused(job_id, answer)
        if isinstance(answer, HoldfastError)
        else wire.ReportResult(**msgspec.structs.asdict(next(went)))
        for job_id, answer in zip(job_ids, answers, strict=True)
    ]


async def went_to(snapshots: PolicyCache, answers: Sequence[Settled]) -> list[wire.SettledAnswer]:
    known = await snapshots.of_jobs({answer.id for answer in answers})
    return [
        wire.SettledAnswer(answer.id, STATUS[answer.state], known[answer.id].machine.words[answer.state])
        for answer in answers
    ]


def lost_in(answer: wire.ReportsAnswer) -> int:
    """How many of the words came too late."""
    lists: list[list[wire.ReportResult]] = [getattr(answer, verb) for verb in answer.__struct_fields__]
    return sum(report.code == LeaseLost.code for said in lists for report in said)


def refused(job_id: str, error: HoldfastError) -> wire.ReportResult:
    return wire.ReportResult(
        job_id, code=error.code, detail=error.message, reassigned=error.fields.get("reassigned") is True
    )
