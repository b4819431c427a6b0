"""What a worker says about its jobs, from the words of the wire to the engine's, and the answers back again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from holdfast import wire
from holdfast.batching import each
from holdfast.errors import HoldfastError, Invalid, LeaseLost, StoreError
from holdfast.lifecycle import STATUS
from holdfast.model import Part
from holdfast.model.reports import Advanced, Done, Failure, Freed, Progress, Settled, Verdict
from holdfast.server.policy_cache import PolicyCache

WORDS_MAX = 1000  # in one report

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class NamedReport(Protocol):
    """What is said of a job."""

    @property
    def id(self) -> str: ...


def progress_of(body: wire.ProgressBody) -> Progress:
    return Progress(
        id=body.job_id,
        token=body.lease_token,
        step=body.current_step,
        percent=body.progress_percent,
        counters=body.counters,
        eta_seconds=body.eta_seconds,
        checkpoint=body.checkpoint,
        parts=[Part(**msgspec.structs.asdict(part)) for part in body.parts],
    )


def done_of(body: wire.CompleteBody) -> Done:
    return Done(body.job_id, body.lease_token, body.result)


def failure_of(body: wire.FailBody) -> Failure:
    return Failure(
        id=body.job_id,
        token=body.lease_token,
        code=body.error_code,
        message=body.message,
        context=body.context,
        retry_after_seconds=body.retry_after_seconds,
        permanent=body.permanent,
    )


def freed_of(body: wire.ReleaseBody) -> Freed:
    return Freed(body.job_id, body.lease_token, body.delay_seconds, body.snoozed, body.wait_for_children)


def verdict_of(body: wire.RejectBody) -> Verdict:
    return Verdict(
        id=body.job_id, token=body.lease_token, code=body.error_code, message=body.message, context=body.context
    )


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


def advanced(job_id: str, answer: Advanced | HoldfastError) -> wire.Report:
    if isinstance(answer, HoldfastError):
        return refused(job_id, answer)
    return wire.Report(job_id, lease_expires_at=answer.expires_at, cancel=answer.cancel_requested)


async def settled(
    snapshots: PolicyCache, job_ids: list[str], answers: Sequence[Settled | HoldfastError]
) -> list[wire.Report]:
    went = iter(await went_to(snapshots, [answer for answer in answers if isinstance(answer, Settled)]))
    return [
        refused(job_id, answer)
        if isinstance(answer, HoldfastError)
        else wire.Report(**msgspec.structs.asdict(next(went)))
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
    lists: list[list[wire.Report]] = [getattr(answer, verb) for verb in answer.__struct_fields__]
    return sum(report.code == LeaseLost.code for said in lists for report in said)


def refused(job_id: str, error: HoldfastError) -> wire.Report:
    return wire.Report(job_id, code=error.code, detail=error.message, reassigned=error.fields.get("reassigned") is True)
