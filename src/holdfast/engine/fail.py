"""fail: an execution reports an error. Its code has a class, the class has a policy, and the policy decides."""

from __future__ import annotations

from typing import Any

from holdfast.engine.decide import Decision, after_failure
from holdfast.engine.held import check_worker, settle_or_refuse, token_rows
from holdfast.engine.lawful import movable
from holdfast.engine.move import move
from holdfast.engine.rules import Rules
from holdfast.errors import Invalid, LeaseLost
from holdfast.lifecycle import Actor, State
from holdfast.model.json import encode
from holdfast.model.names import check_name
from holdfast.model.numbers import check_number
from holdfast.model.reports import Failure, Settled
from holdfast.store import Row, Tx, q

CONTEXT_BYTES_MAX = 16 * 1024

Lost = tuple[Any, ...]  # a row for one of the statements that end an execution


async def fail(tx: Tx, rules: Rules, failures: list[Failure], *, worker: str) -> list[Settled | LeaseLost]:
    """Retry, bury or cancel each, as the policy it was created under says; a lost lease changes nothing."""
    check_worker(worker)
    for failure in failures:
        _check(failure)
    errors = {failure.id: stored_error(rules, failure.code, failure.message, failure.context) for failure in failures}
    decided = await _decide(tx, rules, failures, worker)
    settled = await _carry_out(tx, rules, failures, decided, errors, worker)
    return [
        Settled(failure.id, settled[failure.id])
        if failure.id in settled
        else await _repeated(tx, failure, errors[failure.id], worker)
        for failure in failures
    ]


async def _repeated(tx: Tx, failure: Failure, error: str, worker: str) -> Settled | LeaseLost:
    same: dict[str, str | None] = {"error": error}
    return await settle_or_refuse(tx, failure.held, worker, {"failed": same, "canceled": same})


async def _decide(tx: Tx, rules: Rules, failures: list[Failure], worker: str) -> dict[str, Decision]:
    by_id = {failure.id: failure for failure in failures}
    decided = {}
    for row in await tx.all(q.held_jobs, held=token_rows([failure.held for failure in failures]), worker=worker):
        failure = by_id[row["id"]]
        await rules.hooks.check(tx, "fail", failure, row["lifecycle"], row["type"])
        decided[failure.id] = after_failure(
            row,
            await rules.registry.snapshot(tx, row["policy"]),
            failure.code,
            permanent=failure.permanent,
            retry_after=failure.retry_after_seconds,
            jitter=rules.ids.jitter(),
        )
    return decided


async def _carry_out(
    tx: Tx,
    rules: Rules,
    failures: list[Failure],
    decided: dict[str, Decision],
    errors: dict[str, str],
    worker: str,
) -> dict[str, State]:
    retried: list[Lost] = []
    buried: list[Lost] = []
    canceled: list[Lost] = []
    detoured: list[Lost] = []
    for failure in sorted(failures, key=lambda failure: failure.id):
        decision = decided.get(failure.id)
        if decision is None:
            continue
        error = errors[failure.id]
        lease = (failure.id, failure.token)
        match decision.to:
            case State.CANCELED:
                canceled.append((*lease, error))
            case State.DEAD if not decision.detour:
                buried.append((*lease, decision.reason, error))
            case _:
                retried.append((*lease, decision.reason, error, float(decision.delay_seconds)))
                if decision.detour:
                    detoured.append((failure.id, decision.reason))
    moved: list[Row] = []
    if retried:
        moved += await move(tx, rules, q.retry_jobs, actor=Actor.WORKER, failed=retried, worker=worker)
    if buried:
        moved += await move(tx, rules, q.bury_jobs, actor=Actor.WORKER, failed=buried, worker=worker)
    if canceled:
        moved += await move(tx, rules, q.cancel_running, actor=Actor.WORKER, stopped=canceled, worker=worker)
    if detoured:
        moved += await move(tx, rules, q.bury_waiting, actor=Actor.WORKER, buried=detoured)
    tx.after_commit(lambda: rules.wake(row for row in moved if row["state"] == State.RETRYING))
    return {row["id"]: State(row["state"]) for row in moved}  # of two moves of a job, the later one counts


async def discard(tx: Tx, rules: Rules, ids: list[str], *, actor: Actor, reason: str = "discarded") -> list[Row]:
    """Give up on retries that still wait."""
    check_name(reason, "reason")
    waiting = await movable(tx, rules, ids, "fail", State.RETRYING, State.DEAD, actor)
    if not waiting:
        return []
    return await move(tx, rules, q.bury_waiting, actor=actor, buried=[(row["id"], reason) for row in waiting])


def shown(rules: Rules, message: str) -> str:
    """An over-long message is cut, not refused: the error that broke a job must not break its report too."""
    text = message.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
    return text if len(text) <= rules.limits.error_max_chars else text[: rules.limits.error_max_chars - 1] + "…"


def stored_error(rules: Rules, code: str, message: str, context: dict[str, Any] | None) -> str:
    body: dict[str, Any] = {"code": code, "message": shown(rules, message)}
    if context:
        body["context"] = context
    return encode(body, "error", max_bytes=CONTEXT_BYTES_MAX + 4 * rules.limits.error_max_chars)


def check_words(code: str, message: str, context: dict[str, Any] | None) -> None:
    check_name(code, "error code")
    if not isinstance(message, str):
        raise Invalid(f"an error message is text, got {type(message).__name__}", code="invalid_message")
    if context is not None and not isinstance(context, dict):
        raise Invalid(f"an error context is a JSON object, got {type(context).__name__}", code="invalid_context")


def _check(failure: Failure) -> None:
    check_words(failure.code, failure.message, failure.context)
    if failure.retry_after_seconds is not None:
        check_number(failure.retry_after_seconds, "retry_after_seconds", code="invalid_retry_after")
