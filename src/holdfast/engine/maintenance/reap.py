"""reap: end attempts whose lease expired, whose worker crashed, or that ran too long. Any process may run it."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.engine.cancel import CONTROL
from holdfast.engine.context import EngineContext, Which
from holdfast.engine.decide import Decision, after_loss, is_loss
from holdfast.engine.fail import Lost, reset_parts, stored_error
from holdfast.engine.hooks.moves import Found, each_by_itself
from holdfast.engine.leases import check_list
from holdfast.engine.move import move
from holdfast.errors import HoldfastError
from holdfast.lifecycle import Actor, State
from holdfast.model.numbers import check_limit
from holdfast.store import Row, Tx, q

_WHY = {
    "worker_died": "the worker process crashed",
    "lease_expired": "the lease expired without a heartbeat",
    "max_runtime": "the job ran longer than its policy allows",
    "no_progress": "the job reported no progress for too long",
    "cancel_not_obeyed": "the worker did not stop the job within the grace period of a cancel",
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
    """End attempts that are lost or over time: retry, dead or canceled. Bounded; skips rows locked by other reapers.

    `gone`: worker instances that crashed; their jobs do not wait until the lease expires, except for leases renewed in
    the last `unheard_seconds`: a process that renews is alive.
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

    moved = [*(await _settle(tx, ctx, await tx.all(q.lost_jobs, **wanted), ctx.plain)).values()]
    if ctx.hooks.extensions:
        moved += await _reap_with_hooks(tx, ctx, await tx.all(ctx.mine(q.lost_jobs), **wanted))
    tx.after_commit(lambda: _reaped(ctx, moved))
    return moved


async def drop_claim_batches(tx: Tx, ctx: EngineContext) -> int:
    """Forget claims whose jobs have all ended, which PostgreSQL lists until then. Returns their number."""
    row = await tx.one(q.drop_claim_batches, limit=ctx.limits.sweep_batch)
    return int(row["dropped"]) if row else 0


async def _reap_with_hooks(tx: Tx, ctx: EngineContext, rows: list[Row]) -> list[Row]:
    async def settle(found: list[Found]) -> dict[str, Row]:
        return await _settle(tx, ctx, [one.row for one in found], ctx.mine)

    lost = [Found(row["id"], row) for row in rows]
    answers = await each_by_itself(tx, ctx, "reap", lost, settle) if lost else {}
    return [answer for answer in answers.values() if not isinstance(answer, HoldfastError)]


async def _settle(tx: Tx, ctx: EngineContext, rows: list[Row], which: Which) -> dict[str, Row]:
    snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in rows))
    decided = []
    for row in rows:
        why = _why(row)
        decided.append((row, after_loss(row, snapshots[row["policy"]], why, jitter=ctx.ids.jitter()), why))
    return await _carry_out(tx, ctx, decided, which)


def _reaped(ctx: EngineContext, moved: list[Row]) -> None:
    ctx.reaped += len(moved)
    ctx.wake(row for row in moved if row["state"] == State.RETRYING)


def _why(row: Row) -> str:
    if row["seen_dead"]:
        return "worker_died"
    if row["over_runtime"]:
        return "max_runtime"
    if row["no_progress"]:
        return "no_progress"
    return "cancel_not_obeyed" if row["over_cancel"] else "lease_expired"


async def _carry_out(
    tx: Tx, ctx: EngineContext, decided: list[tuple[Row, Decision, str]], which: Which
) -> dict[str, Row]:
    retried: list[Lost] = []
    dead: list[Lost] = []
    canceled: list[Lost] = []
    detoured: list[str] = []
    errors: dict[tuple[str, str, int, str, bool], str] = {}  # the jobs of a crashed worker share one
    for row, decision, why in decided:
        lease = (row["id"], row["lease_token"], int(is_loss(why)))
        code = "timeout_soft" if decision.to is State.RETRYING else str(decision.reason)
        alike = (code, why, row["attempt"], row["lease_worker"], row["cancel_requested_at"] is None)
        if (error := errors.get(alike)) is None:
            error = errors[alike] = _error(ctx, row, code, why)
        match decision.to:
            case State.CANCELED:
                canceled.append((*lease, decision.reason))
            case State.DEAD if not decision.detour:
                dead.append((*lease, decision.reason, error))
            case _:
                retried.append((*lease, decision.reason, error, float(decision.delay_seconds)))
                if decision.detour:
                    detoured.append(row["id"])
    moved: list[Row] = []
    if retried:
        moved += await move(tx, ctx, which(q.reap_to_retry), actor=Actor.SYSTEM, gone=retried)
        await reset_parts(tx, ((row["id"], decision) for row, decision, _ in decided), moved)
    if dead:
        moved += await move(tx, ctx, which(q.reap_to_dead), actor=Actor.SYSTEM, gone=dead)
    if canceled:
        moved += await move(tx, ctx, which(q.reap_to_canceled), actor=Actor.SYSTEM, gone=canceled)
    if detoured:
        moved += await move(tx, ctx, which(q.reap_waiting), actor=Actor.SYSTEM, ids=detoured)
    return {row["id"]: row for row in moved}  # the later of two transitions


def _error(ctx: EngineContext, row: Row, code: str, why: str) -> str:
    context: dict[str, Any] = {} if row["cancel_requested_at"] is None else {"control": CONTROL}
    return stored_error(ctx, code, _WHY[why], context | {"attempt": row["attempt"], "workerId": row["lease_worker"]})


class LastSweep(NamedTuple):
    """`in_grace`: missing heartbeats prove nothing yet. `set_back`: the last sweep is in the future, so the clock was
    set back."""

    in_grace: bool = False
    set_back: bool = False


async def last_sweep(tx: Tx, ctx: EngineContext) -> LastSweep:
    """Record this sweep and compare it with the last one. After a gap without sweeps, as in an outage, missing
    heartbeats prove nothing during the startup grace.

    Run it in its own transaction: all sweepers update this row, so it must not stay locked while one reaps.
    """
    row = await tx.one(q.sweep, pause=pause_of(ctx))
    if row is None:
        await tx.one(q.first_sweep)
        return LastSweep()
    if row["set_back"]:
        return LastSweep(set_back=True)
    if row["stale"]:
        row = await record_sweep(tx, ctx) or row
    return LastSweep(in_grace=bool(row["in_grace"]))


async def record_sweep(tx: Tx, ctx: EngineContext) -> Row | None:
    """Record a sweep. None: the last one is recent, in the future, or there is none."""
    return await tx.one(
        q.mark_sweep,
        pause=pause_of(ctx),
        interval=float(ctx.limits.sweep_seconds),
        grace_seconds=float(ctx.limits.startup_grace_seconds),
    )


def pause_of(ctx: EngineContext) -> float:
    """The shortest time between two recorded sweeps: half the interval, so that a late sweep is not taken for a gap."""
    return ctx.limits.sweep_seconds / 2
