"""reject: end a job because a rule forbids it, before or during its run. It is not retried."""

from __future__ import annotations

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.fail import check_words, failed_error, stored_error
from holdfast.engine.hooks.moves import ask_guards, in_two_passes, moved_rows
from holdfast.engine.leases import Refusal, check_worker, in_rounds, settle_or_refuse, token_rows
from holdfast.engine.move import move
from holdfast.engine.preconditions import movable, require_move
from holdfast.lifecycle import Actor, State
from holdfast.model.reports import Rejection, Settled
from holdfast.store import Row, Tx, q


@in_rounds
async def reject(tx: Tx, ctx: EngineContext, worker: str, verdicts: list[Rejection]) -> list[Settled | Refusal]:
    """Reject running jobs, by the worker that holds their leases."""
    check_worker(worker)
    for verdict in verdicts:
        check_words(verdict.code, verdict.message, verdict.context)
    errors = {v.id: failed_error(ctx, v, worker) for v in verdicts}

    async def settle(which: Which, some: list[Rejection]) -> dict[str, Settled]:
        held = await tx.all(which(q.held_jobs), held=token_rows(some), worker=worker)
        by_id = {v.id: v for v in some}
        snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in held))
        for row in held:
            machine = snapshots[row["policy"]].machine
            require_move(machine, "reject", row["id"], State.RUNNING, State.REJECTED, Actor.WORKER)
        if which == ctx.mine:
            await ask_guards(tx, ctx, "reject", by_id, held)
        rows = sorted(
            (row["id"], by_id[row["id"]].token, by_id[row["id"]].code, errors[row["id"]](row["attempt"], None))
            for row in held
        )
        query = which(q.reject_running)
        moved = await move(tx, ctx, query, actor=Actor.WORKER, verdict=rows, worker=worker) if rows else []
        return {row["id"]: Settled(row["id"], State.REJECTED) for row in moved}

    settled = await in_two_passes(tx, ctx, "reject", verdicts, settle)
    return [
        settled.get(v.id) or await settle_or_refuse(tx, ctx, v, worker, {"rejected": {"error": errors[v.id]}})
        for v in verdicts
    ]


async def reject_queued(tx: Tx, ctx: EngineContext, *verdicts: Rejection) -> list[str]:
    """Reject queued jobs, by the system. Jobs that have left the queue do not change."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    errors = {verdict.id: _error(ctx, verdict) for verdict in verdicts}
    queued = await movable(tx, ctx, list(by_id), "reject", State.QUEUED, State.REJECTED, Actor.SYSTEM)

    async def end(which: Which, some: list[str]) -> list[Row]:
        rows = [(job_id, by_id[job_id].code, errors[job_id]) for job_id in some]
        return await move(tx, ctx, which(q.reject_queued), actor=Actor.SYSTEM, verdict=rows)

    return [row["id"] for row in await moved_rows(tx, ctx, "reject", queued, end, reports=by_id)]


def _error(ctx: EngineContext, verdict: Rejection) -> str:
    check_words(verdict.code, verdict.message, verdict.context)
    return stored_error(ctx, verdict.code, verdict.message, verdict.context)
