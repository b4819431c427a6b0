"""fail: an attempt reports an error; the policy of the job decides by its code: retry with backoff, or dead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.engine.cancel import CONTROL
from holdfast.engine.context import EngineContext, Which
from holdfast.engine.decide import Decision, after_failure
from holdfast.engine.hooks.moves import ask_guards, in_two_passes, moved_rows
from holdfast.engine.leases import ErrorOf, Refusal, Same, check_worker, in_rounds, settle_or_refuse, token_rows
from holdfast.engine.move import move
from holdfast.engine.preconditions import movable
from holdfast.errors import InvalidField
from holdfast.lifecycle import Actor, State
from holdfast.model.json import encode, readable
from holdfast.model.names import NAME_MAX, check_name
from holdfast.model.numbers import check_number
from holdfast.model.reports import CONTEXT_BYTES_MAX, Fail, HeldLease, Rejection, Settled
from holdfast.store import Row, Tx, q

ADDED_BYTES_MAX = 200  # of what the engine adds to an error context
WITHDRAWN_BYTES_MAX = 4 * NAME_MAX + 200  # of what it adds besides to that of a withdrawn job

Lost = tuple[Any, ...]  # a row for one of the statements that end an attempt


@in_rounds
async def fail(tx: Tx, ctx: EngineContext, worker: str, failures: list[Fail]) -> list[Settled | Refusal]:
    """Apply the policy that each job was created with; a report with a lost lease changes nothing."""
    check_worker(worker)
    for failure in failures:
        _check(failure)
    errors = {failure.id: failed_error(ctx, failure, worker) for failure in failures}

    async def settle(which: Which, some: list[Fail]) -> dict[str, Settled]:
        decided = await _decide(tx, ctx, some, worker, which)
        return await carry_out(tx, ctx, some, decided, errors, worker, which)

    settled = await in_two_passes(tx, ctx, "fail", failures, settle)
    return [
        settled.get(failure.id) or await _repeated(tx, ctx, failure, errors[failure.id], worker) for failure in failures
    ]


async def _repeated(tx: Tx, ctx: EngineContext, failure: Fail, error: ErrorOf, worker: str) -> Settled | Refusal:
    repeats: dict[str, Same] = {
        "failed": {"error": error},
        "canceled": {"error": lambda attempt, _: error(attempt, None)},  # it ended for the reason of the request
    }
    return await settle_or_refuse(tx, ctx, failure, worker, repeats)


async def _decide(
    tx: Tx, ctx: EngineContext, failures: list[Fail], worker: str, which: Which
) -> dict[str, tuple[Decision, int]]:
    """The decision for each job, and the number of the failed attempt."""
    by_id = {failure.id: failure for failure in failures}
    decided = {}
    rows = await tx.all(which(q.held_jobs), held=token_rows(failures), worker=worker)
    if which == ctx.mine:
        await ask_guards(tx, ctx, "fail", by_id, rows)
    snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in rows))
    for row in rows:
        failure = by_id[row["id"]]
        decision = after_failure(
            row,
            snapshots[row["policy"]],
            failure.code,
            permanent=failure.permanent,
            retry_after=failure.retry_after_seconds,
            jitter=ctx.ids.jitter(),
        )
        decided[failure.id] = decision, row["attempt"]
    return decided


async def carry_out(
    tx: Tx,
    ctx: EngineContext,
    ended: Sequence[HeldLease],
    decided: dict[str, tuple[Decision, int]],
    errors: Mapping[str, ErrorOf],
    worker: str,
    which: Which,
) -> dict[str, Settled]:
    """End the attempts that were decided, each with its decision and number."""
    retried: list[Lost] = []
    dead: list[Lost] = []
    canceled: list[Lost] = []
    detoured: list[Lost] = []
    for one in sorted(ended, key=lambda one: one.id):
        if one.id not in decided:
            continue
        decision, attempt = decided[one.id]
        error = errors[one.id](attempt, decision.reason)
        lease = (one.id, one.token)
        match decision.to:
            case State.CANCELED:
                canceled.append((*lease, error))
            case State.DEAD if not decision.detour:
                dead.append((*lease, decision.reason, error))
            case _:
                retried.append((*lease, decision.reason, error, float(decision.delay_seconds)))
                if decision.detour:
                    detoured.append((one.id, decision.reason, None))
    moved: list[Row] = []
    if retried:
        moved += await move(tx, ctx, which(q.retry_jobs), actor=Actor.WORKER, failed=retried, worker=worker)
        await reset_parts(tx, ((job_id, decision) for job_id, (decision, _) in decided.items()), moved)
    if dead:
        moved += await move(tx, ctx, which(q.dead_letter_jobs), actor=Actor.WORKER, failed=dead, worker=worker)
    if canceled:
        moved += await move(tx, ctx, which(q.cancel_running), actor=Actor.WORKER, stopped=canceled, worker=worker)
    if detoured:
        moved += await move(tx, ctx, which(q.dead_letter_waiting), actor=Actor.WORKER, buried=detoured)
    tx.after_commit(lambda: ctx.wake(row for row in moved if row["state"] == State.RETRYING))
    return {row["id"]: Settled(row["id"], State(row["state"])) for row in moved}  # the later of two transitions


async def reset_parts(tx: Tx, decided: Iterable[tuple[str, Decision]], moved: list[Row]) -> None:
    """Reset the parts of retried jobs: a policy may restart completed parts and discard partial ones."""
    retried = {row["id"] for row in moved}
    rows = [
        (job_id, not policy.keep_completed_parts, policy.discard_partial_parts)
        for job_id, decision in decided
        if (policy := decision.policy) is not None
        and job_id in retried
        and (policy.discard_partial_parts or not policy.keep_completed_parts)
    ]
    if rows:
        await tx.all(q.reset_parts, failed=rows)


async def discard(
    tx: Tx,
    ctx: EngineContext,
    *ids: str,
    actor: Actor = Actor.SYSTEM,
    reason: str = "discarded",
    error: str | None = None,
) -> list[str]:
    """End waiting retries as dead. Without `error`, they keep the error of their last attempt."""
    check_name(reason, "reason")
    waiting = await movable(tx, ctx, ids, "fail", State.RETRYING, State.DEAD, actor)

    async def dead_letter(which: Which, some: list[str]) -> list[Row]:
        dead = [(job_id, reason, error) for job_id in some]
        return await move(tx, ctx, which(q.dead_letter_waiting), actor=actor, buried=dead)

    return [row["id"] for row in await moved_rows(tx, ctx, "fail", waiting, dead_letter)]


def shown(ctx: EngineContext, message: str) -> str:
    """Truncate a message that is too long: to refuse it would lose the report of the failure."""
    text = readable(message)
    return text if len(text) <= ctx.limits.error_max_chars else text[: ctx.limits.error_max_chars - 1] + "…"


def failed_error(ctx: EngineContext, report: Fail | Rejection, worker: str) -> ErrorOf:
    """Attempt number and reason -> the error as it is stored, with the attempt and the worker in its context. Another
    reason than the reported code is that of a withdrawal.

    Raises at once if the error cannot be stored, before anything is written.
    """
    stored_error(ctx, report.code, report.message, report.context)

    def of(attempt: int, reason: str | None) -> str | None:
        if reason not in (None, report.code):
            return withdrawn_error(ctx, worker, report)(attempt, reason)
        context = {**(report.context or {}), "attempt": attempt, "workerId": worker}
        return stored_error(ctx, report.code, report.message, context, added_bytes=ADDED_BYTES_MAX)

    return of


def withdrawn_error(ctx: EngineContext, worker: str, report: Fail | Rejection | None = None) -> ErrorOf:
    """The error of a running job that was withdrawn, with what its worker reported instead of stopping quietly."""
    context: dict[str, Any] = {"control": CONTROL}
    if report is not None:
        reported = {"code": report.code, "message": shown(ctx, report.message)}
        context = {**(report.context or {}), **context, "reported": reported}

    def of(attempt: int, reason: str | None) -> str:
        said = {**context, "attempt": attempt, "workerId": worker}
        added = ADDED_BYTES_MAX + WITHDRAWN_BYTES_MAX
        return stored_error(ctx, str(reason), "the job was withdrawn while it was running", said, added_bytes=added)

    return of


def stored_error(
    ctx: EngineContext, code: str, message: str, context: dict[str, Any] | None, *, added_bytes: int = 0
) -> str:
    body: dict[str, Any] = {"code": code, "message": shown(ctx, message)}
    if context:
        body["context"] = context
    return encode(body, "error", max_bytes=CONTEXT_BYTES_MAX + 4 * ctx.limits.error_max_chars + added_bytes)


def check_words(code: str, message: str, context: dict[str, Any] | None) -> None:
    check_name(code, "error_code")
    if not isinstance(message, str):
        raise InvalidField(f"an error message must be text, got {type(message).__name__}", field="message")
    if context is not None and not isinstance(context, dict):
        raise InvalidField(f"an error context must be a JSON object, got {type(context).__name__}", field="context")


def _check(failure: Fail) -> None:
    check_words(failure.code, failure.message, failure.context)
    if failure.retry_after_seconds is not None:
        check_number(failure.retry_after_seconds, "retry_after_seconds")
