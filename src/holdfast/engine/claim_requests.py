"""Idempotent claims: the answer is stored under the request id, and a repeated request gets the same leases."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine import claim as _claim
from holdfast.engine.context import EngineContext
from holdfast.engine.lane_scope import LaneScope
from holdfast.engine.leases import leases_of
from holdfast.engine.release import release
from holdfast.model import Lease
from holdfast.model.reports import HeldLease, Release
from holdfast.store import Tx, q


async def claim_once(
    tx: Tx,
    ctx: EngineContext,
    request: str,
    *,
    worker: str,
    queues: list[str] | None,
    types: list[str] | None,
    limit: int,
    **holder: Any,
) -> list[Lease] | None:
    """New leases, or those of an earlier request with this id that are still held; None if there are none.

    The read of open lanes comes first, so an idle worker writes nothing; a request without leases is not stored.
    """
    scope = LaneScope(ctx, worker=worker, queues=queues, types=types)
    for _ in range(_claim.PASSES_MAX):
        window = await scope.open_lanes(tx, limit)
        if window.lanes or window.shut or window.complete:
            break
    else:
        return await _answered_before(tx, worker, request)
    if not window.lanes and not window.shut:
        return await _answered_before(tx, worker, request)
    if await tx.one(q.begin_claim, worker=worker, request=request) is None:
        return await _answered_before(tx, worker, request)
    leases = await _claim.claim(tx, ctx, worker=worker, queues=queues, types=types, limit=limit, seen=window, **holder)
    if not leases:
        await tx.one(q.drop_claim, worker=worker, request=request)
        return None
    kept = msgspec.json.encode([(lease.id, lease.token) for lease in leases]).decode()
    await tx.one(q.answer_claim, worker=worker, request=request, leases=kept)
    return leases


async def _answered_before(tx: Tx, worker: str, request: str) -> list[Lease] | None:
    """Read after the open lanes: if the same request has emptied them, its answer is committed by now."""
    row = await tx.one(q.repeat_claim, worker=worker, request=request)
    if row is None:
        return None
    return await leases_of(tx, [HeldLease(*pair) for pair in msgspec.json.decode(row["leases"])])


async def give_back(
    tx: Tx, ctx: EngineContext, worker: str, leases: list[HeldLease], *, request: str | None = None
) -> bool:
    """Release leases whose response did not reach the worker. False: a repeat of the request has got them."""
    if request is not None and await tx.one(q.drop_claim, worker=worker, request=request) is None:
        return False
    await release(tx, ctx, worker, [Release(lease.id, lease.token) for lease in leases])
    return True


async def prune_claims(tx: Tx, ctx: EngineContext, seconds: float) -> int:
    """Delete stored answers that are too old for a repeat."""
    return len(await tx.all(q.prune_claims, seconds=float(seconds), limit=ctx.limits.sweep_batch))
