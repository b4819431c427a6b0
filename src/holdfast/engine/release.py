"""release: a worker returns an unfinished job to the queue, without using up the attempt; snooze adds a delay."""

from __future__ import annotations

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.decide import ends_canceled
from holdfast.engine.hooks.moves import ask_guards, in_two_passes
from holdfast.engine.leases import Refusal, check_worker, in_rounds, settle_or_refuse, token_rows
from holdfast.engine.move import move
from holdfast.lifecycle import Actor, State
from holdfast.model.numbers import check_number
from holdfast.model.reports import Release, Settled
from holdfast.store import Tx, q


@in_rounds
async def release(tx: Tx, ctx: EngineContext, worker: str, items: list[Release]) -> list[Settled | Refusal]:
    """Return jobs to the queue, at once or after a delay. If a cancel was requested, the job ends instead."""
    check_worker(worker)
    for item in items:
        check_number(item.delay_seconds, "delay_seconds")

    async def settle(which: Which, some: list[Release]) -> dict[str, Settled]:
        return await _settle(tx, ctx, some, worker, which)

    settled = await in_two_passes(tx, ctx, "release", items, settle)
    return [
        settled.get(item.id)
        or await settle_or_refuse(
            *(tx, ctx, item, worker), {"released": {"reason": item.reason}, "canceled": {"error": None}}
        )
        for item in items
    ]


async def _settle(tx: Tx, ctx: EngineContext, items: list[Release], worker: str, which: Which) -> dict[str, Settled]:
    held = await tx.all(which(q.held_jobs), held=token_rows(items), worker=worker)
    if which == ctx.mine:
        await ask_guards(tx, ctx, "release", {item.id: item for item in items}, held)
    asked = [row for row in held if row["cancel_requested_at"] is not None]
    snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in asked))
    stopping = {row["id"] for row in asked if ends_canceled(snapshots[row["policy"]].machine)}
    released = [
        (item.id, item.token, item.reason, float(item.delay_seconds))
        for item in sorted(items, key=lambda item: item.id)
        if item.plausible and item.id not in stopping
    ]
    stopped = [(item.id, item.token, None) for item in items if item.id in stopping]
    moved = []
    if released:
        moved += await move(tx, ctx, which(q.release_jobs), actor=Actor.WORKER, freed=released, worker=worker)
    if stopped:
        query = which(q.cancel_running)
        moved += await move(tx, ctx, query, actor=Actor.WORKER, stopped=sorted(stopped), worker=worker)
    tx.after_commit(lambda: ctx.wake(row for row in moved if row["state"] == State.QUEUED))
    return {row["id"]: Settled(row["id"], State(row["state"])) for row in moved}
