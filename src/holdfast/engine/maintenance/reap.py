"""reap: executions that ended without a word. Never a job of its own, never a leader, safe to run anywhere at once."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.engine.claim import check_list
from holdfast.engine.context import EngineContext, Which
from holdfast.engine.decide import Decision, after_loss, is_loss
from holdfast.engine.fail import Lost, stored_error
from holdfast.engine.hooks.moves import Found, swept_rows
from holdfast.engine.move import move
from holdfast.engine.parts import reset_parts
from holdfast.lifecycle import Actor, State
from holdfast.model.numbers import check_limit
from holdfast.store import Row, Tx, q

_WHY = {
    "worker_died": "the process that ran the job is gone",
    "lease_expired": "the lease ran out without a heartbeat",
    "max_runtime": "the job ran longer than its policy allows",
    "no_progress": "the job reported no progress for too long",
}


async def reap(
    tx: Tx,
    ctx: EngineContext,
    *,
    queues: list[str] | None = None,
    gone: list[str] | None = None,
    unheard_seconds: float = 0.0,
    in_grace: bool = False,
    limit: int | None = None,
) -> list[Row]:
    """Take leases that are over from whoever held them. Bounded; rows that others are judging are skipped.

    `gone` names worker instances that were seen to die; their jobs need not wait for the lease. One that was renewed in
    the last `unheard_seconds` stays: whoever renews it is alive.
    """
    most = ctx.limits.sweep_batch
    check_list(queues, "queues")
    check_list(gone, "instances")
    wanted: dict[str, Any] = {
        "queues": queues,
        "gone": gone or [],
        "unheard": float(unheard_seconds),
        "in_grace": in_grace,
        "limit": most if limit is None else min(check_limit(limit, "jobs"), most),
    }

    async def settle(which: Which, found: list[Found]) -> dict[str, Row]:
        return await _judge(tx, ctx, [one.row for one in found], which)

    moved = await swept_rows(tx, ctx, "reap", q.lost_jobs, wanted, settle)
    tx.after_commit(lambda: _tell(ctx, moved))
    return moved


async def _judge(tx: Tx, ctx: EngineContext, rows: list[Row], which: Which) -> dict[str, Row]:
    snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in rows))
    decided = []
    for row in rows:
        why = _why(row)
        decided.append((row, after_loss(row, snapshots[row["policy"]], why, jitter=ctx.ids.jitter()), why))
    return await _carry_out(tx, ctx, decided, which)


def _tell(ctx: EngineContext, moved: list[Row]) -> None:
    ctx.reaped += len(moved)
    ctx.wake(row for row in moved if row["state"] == State.RETRYING)


def _why(row: Row) -> str:
    if row["seen_dead"]:
        return "worker_died"
    if row["over_runtime"]:
        return "max_runtime"
    if row["no_progress"]:
        return "no_progress"
    return "lease_expired"


async def _carry_out(
    tx: Tx, ctx: EngineContext, decided: list[tuple[Row, Decision, str]], which: Which
) -> dict[str, Row]:
    retried: list[Lost] = []
    buried: list[Lost] = []
    canceled: list[Lost] = []
    detoured: list[str] = []
    errors: dict[tuple[str, str, int, str], str] = {}  # a worker that died leaves many jobs with the same
    for row, decision, why in decided:
        lease = (row["id"], row["lease_token"], int(is_loss(why)))
        code = "timeout_soft" if decision.to is State.RETRYING else str(decision.reason)
        attempt, worker = row["attempt"], row["lease_worker"]
        alike = (code, why, attempt, worker)
        if (error := errors.get(alike)) is None:
            context = {"attempt": attempt, "workerId": worker}
            error = errors[alike] = stored_error(ctx, code, _WHY[why], context)
        match decision.to:
            case State.CANCELED:
                canceled.append((*lease, decision.reason))
            case State.DEAD if not decision.detour:
                buried.append((*lease, decision.reason, error))
            case _:
                retried.append((*lease, decision.reason, error, float(decision.delay_seconds)))
                if decision.detour:
                    detoured.append(row["id"])
    moved: list[Row] = []
    if retried:
        moved += await move(tx, ctx, which(q.reap_to_retry), actor=Actor.SYSTEM, gone=retried)
        await reset_parts(tx, ((row["id"], decision) for row, decision, _ in decided), moved)
    if buried:
        moved += await move(tx, ctx, which(q.reap_to_dead), actor=Actor.SYSTEM, gone=buried)
    if canceled:
        moved += await move(tx, ctx, which(q.reap_to_canceled), actor=Actor.SYSTEM, gone=canceled)
    if detoured:
        moved += await move(tx, ctx, which(q.reap_waiting), actor=Actor.SYSTEM, ids=detoured)
    return {row["id"]: row for row in moved}  # of two moves of a job, the later one counts


class LastSweep(NamedTuple):
    """`in_grace`: silence proves nothing yet. `set_back`: the last sweep lies ahead, so the clock was set back."""

    in_grace: bool = False
    set_back: bool = False


async def last_sweep(tx: Tx, ctx: EngineContext) -> LastSweep:
    """What the last sweep says about this one, which is noted. After a gap in which no process could sweep, silence
    proves nothing for a while.

    In a transaction of its own: the row of the last sweep is every sweeper's, and must not stay locked while one
    of them judges jobs.
    """
    row = await tx.one(q.sweep, pause=pause_of(ctx))
    if row is None:
        await tx.one(q.first_sweep)
        return LastSweep()
    if row["set_back"]:
        return LastSweep(set_back=True)
    if row["stale"]:
        row = await _mark(tx, ctx) or row
    return LastSweep(in_grace=bool(row["in_grace"]))


async def record_sweep(tx: Tx, ctx: EngineContext) -> bool:
    """Note a sweep that had nothing to judge. False: the last one was just now, lies ahead, or was never."""
    return await _mark(tx, ctx) is not None


async def _mark(tx: Tx, ctx: EngineContext) -> Row | None:
    return await tx.one(
        q.mark_sweep,
        pause=pause_of(ctx),
        interval=float(ctx.limits.sweep_seconds),
        grace_seconds=float(ctx.limits.startup_grace_seconds),
    )


def pause_of(ctx: EngineContext) -> float:
    """Marked this often, sweeps that come a little early or late leave no gap that looks as if nobody could sweep."""
    return ctx.limits.sweep_seconds / 2
