"""release: a worker returns an unfinished job to the queue, without using up the attempt; snooze adds a delay."""

from __future__ import annotations

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.decide import after_cancel
from holdfast.engine.fail import carry_out, withdrawn_error
from holdfast.engine.hooks.moves import ask_guards, in_two_passes
from holdfast.engine.leases import ErrorOf, Refusal, Same, check_worker, in_rounds, settle_or_refuse, token_rows
from holdfast.engine.move import move
from holdfast.lifecycle import Actor, State
from holdfast.model.numbers import check_number
from holdfast.model.reports import Release, Settled
from holdfast.store import Tx, q


@in_rounds
async def release(tx: Tx, ctx: EngineContext, worker: str, items: list[Release]) -> list[Settled | Refusal]:
    """Return jobs to the queue, at once or after a delay. If a cancel was requested, the job ends instead: canceled, or
    dead where the lifecycle has no cancel."""
    check_worker(worker)
    for item in items:
        check_number(item.delay_seconds, "delay_seconds")

    async def settle(which: Which, some: list[Release]) -> dict[str, Settled]:
        return await _settle(tx, ctx, some, worker, which)

    settled = await in_two_passes(tx, ctx, "release", items, settle)
    return [settled.get(item.id) or await _repeated(tx, ctx, item, worker) for item in items]


async def _repeated(tx: Tx, ctx: EngineContext, item: Release, worker: str) -> Settled | Refusal:
    withdrawn: Same = {"error": withdrawn_error(ctx, worker)}
    repeats: dict[str, Same] = {"released": {"reason": item.reason}, "canceled": {"error": None}, "failed": withdrawn}
    return await settle_or_refuse(tx, ctx, item, worker, repeats)


async def _settle(tx: Tx, ctx: EngineContext, items: list[Release], worker: str, which: Which) -> dict[str, Settled]:
    held = await tx.all(which(q.held_jobs), held=token_rows(items), worker=worker)
    if which == ctx.mine:
        await ask_guards(tx, ctx, "release", {item.id: item for item in items}, held)
    asked = [row for row in held if row["cancel_requested_at"] is not None]
    snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in asked))
    decided = {row["id"]: (after_cancel(row, snapshots[row["policy"]].machine), row["attempt"]) for row in asked}
    released = [
        (item.id, item.token, item.reason, float(item.delay_seconds))
        for item in sorted(items, key=lambda item: item.id)
        if item.plausible and item.id not in decided
    ]
    moved = []
    if released:
        moved += await move(tx, ctx, which(q.release_jobs), actor=Actor.WORKER, freed=released, worker=worker)
    tx.after_commit(lambda: ctx.wake(moved))
    settled = {row["id"]: Settled(row["id"], State(row["state"])) for row in moved}
    if decided:
        errors = dict.fromkeys(decided, _error_of(ctx, worker))
        settled |= await carry_out(tx, ctx, items, decided, errors, worker, which)
    return settled


def _error_of(ctx: EngineContext, worker: str) -> ErrorOf:
    """Of a released job that was asked to stop: none if it is canceled."""
    withdrawn = withdrawn_error(ctx, worker)
    return lambda attempt, reason: None if reason is None else withdrawn(attempt, reason)
