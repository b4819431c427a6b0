"""reject: policy, not failure. A verdict ends the job, before it ran or while it runs."""

from __future__ import annotations

from holdfast.engine.fail import check_words, stored_error
from holdfast.engine.held import check_worker, settle_or_refuse, token_rows
from holdfast.engine.lawful import movable, require_move
from holdfast.engine.move import move
from holdfast.engine.rules import Rules
from holdfast.errors import LeaseLost
from holdfast.lifecycle import Actor, State
from holdfast.model.reports import Settled, Verdict
from holdfast.store import Tx, q


async def reject(tx: Tx, rules: Rules, verdicts: list[Verdict], *, worker: str) -> list[Settled | LeaseLost]:
    """The owner's verdict on jobs it runs."""
    check_worker(worker)
    errors = {v.id: _error(rules, v) for v in verdicts}
    held = await tx.all(q.held_jobs, held=token_rows([v.held for v in verdicts]), worker=worker)
    by_id = {v.id: v for v in verdicts}
    for row in held:
        snapshot = await rules.registry.snapshot(tx, row["policy"])
        require_move(snapshot.machine, "reject", row["id"], State.RUNNING, State.REJECTED, Actor.WORKER)
        await rules.hooks.check(tx, "reject", by_id[row["id"]], row["lifecycle"], row["type"])
    rows = sorted((row["id"], by_id[row["id"]].token, by_id[row["id"]].code, errors[row["id"]]) for row in held)
    moved = await move(tx, rules, q.reject_running, actor=Actor.WORKER, verdict=rows, worker=worker) if rows else []
    done = {row["id"] for row in moved}
    return [
        Settled(v.id, State.REJECTED)
        if v.id in done
        else await settle_or_refuse(tx, v.held, worker, {"rejected": {"error": errors[v.id]}})
        for v in verdicts
    ]


async def reject_queued(tx: Tx, rules: Rules, verdicts: list[Verdict]) -> list[str]:
    """The system's verdict on jobs that nobody has started. Those that have left the queue are not touched."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    rows = []
    for row in await movable(tx, rules, list(by_id), "reject", State.QUEUED, State.REJECTED, Actor.SYSTEM):
        verdict = by_id[row["id"]]
        await rules.hooks.check(tx, "reject", verdict, row["lifecycle"], row["type"])
        error = _error(rules, verdict)
        rows.append((verdict.id, verdict.code, error))
    moved = await move(tx, rules, q.reject_queued, actor=Actor.SYSTEM, verdict=rows) if rows else []
    return [row["id"] for row in moved]


def _error(rules: Rules, verdict: Verdict) -> str:
    check_words(verdict.code, verdict.message, verdict.context)
    return stored_error(rules, verdict.code, verdict.message, verdict.context)
