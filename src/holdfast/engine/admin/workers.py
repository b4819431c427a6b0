"""The registry of workers. Operators set `enabled`; heartbeats set the liveness."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.admin.audit import audited
from holdfast.engine.context import EngineContext
from holdfast.engine.leases import check_claim
from holdfast.errors import NotFound
from holdfast.ids import is_uuid
from holdfast.model import WorkerRecord
from holdfast.model.json import encode_object
from holdfast.model.names import capabilities_of, check_id, check_name, check_names, quoted
from holdfast.model.numbers import check_count, check_number
from holdfast.model.worker import ClaimScope, Holding
from holdfast.store import Row, Tx, q

SCOPES_MAX = 20  # of one worker; several processes may share its key


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A registration. Registering an id again updates the worker, but does not enable a disabled one."""

    id: str | None = None
    name: str | None = None
    kind: str = "local"
    tenants: list[str] | None = None
    capabilities: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    slots: int | None = None
    heartbeat_seconds: float = 10
    offline_seconds: float = 90


async def register(tx: Tx, ctx: EngineContext, new: NewWorker) -> WorkerRecord:
    if new.id is not None:
        check_id(new.id, "worker_id")
    if new.name is not None:
        check_name(new.name, "name")
    if new.slots is not None:
        check_count(new.slots, "slots")
    for seconds in ("heartbeat_seconds", "offline_seconds"):
        check_number(getattr(new, seconds), seconds)
    limit = ctx.limits.worker_json_bytes_max
    tenants = None if new.tenants is None else msgspec.json.encode(check_names(new.tenants, "tenants")).decode()
    row = await tx.one(
        q.put_worker,
        id=new.id or ctx.ids.token(),
        name=new.name,
        kind=check_name(new.kind, "kind"),
        tenants=tenants,
        capabilities=encode_object(new.capabilities, "capabilities", max_bytes=limit),
        offers=msgspec.json.encode(capabilities_of(new.capabilities)).decode(),
        metadata=encode_object(new.metadata, "metadata", max_bytes=limit),
        slots=new.slots,
        heartbeat_seconds=float(new.heartbeat_seconds),
        offline_seconds=float(new.offline_seconds),
    )
    return WorkerRecord.from_row(row)


async def get(tx: Tx, worker: str) -> WorkerRecord:
    return _known(await tx.one(q.worker, id=worker) if is_uuid(worker) else None, worker)


def _known(row: Row | None, worker: str) -> WorkerRecord:
    if row is None:
        raise NotFound(f"no worker {quoted(worker)}", code="worker_not_found")
    return WorkerRecord.from_row(row)


async def current(tx: Tx, worker: str) -> WorkerRecord:
    """As it is now: its leases say whether it is busy."""
    return (await get(tx, worker)).with_holding((await holds(tx)).get(worker))


async def every(tx: Tx) -> list[WorkerRecord]:
    held = await holds(tx)
    found = [WorkerRecord.from_row(row) for row in await tx.all(q.workers)]
    return [worker.with_holding(held.get(worker.id)) for worker in found]


async def holds(tx: Tx) -> dict[str, Holding]:
    """The running jobs of each worker that has any."""
    rows = await tx.all(q.held_by_worker)
    return {row["lease_worker"]: Holding(row["jobs"], row["oldest"]) for row in rows}


async def record_scope(
    tx: Tx, ctx: EngineContext, worker: str, types: list[str] | None, queues: list[str] | None
) -> None:
    """Record which types and queues a worker claims over HTTP; the newest `SCOPES_MAX` scopes are kept."""
    check_claim(ctx, worker, None, queues, types, 1)
    row, clock = await tx.one(q.worker, id=worker), await tx.one(q.clock)
    if row is None or clock is None:
        return
    scope = ClaimScope(types, queues, clock["now_at"].timestamp())
    others = [one for one in WorkerRecord.from_row(row).scopes if one.at and (one.types, one.queues) != (types, queues)]
    kept = [scope, *sorted(others, key=lambda one: -one.at)][:SCOPES_MAX]
    await tx.all(q.note_claim_scopes, id=worker, scopes=msgspec.json.encode(kept).decode())


async def enable(tx: Tx, worker: str, *, by: str | None = None) -> WorkerRecord:
    return await _set_enabled(tx, worker, by, "worker.enable", enabled=True)


async def disable(tx: Tx, worker: str, *, by: str | None = None) -> WorkerRecord:
    return await _set_enabled(tx, worker, by, "worker.disable", enabled=False)


async def _set_enabled(tx: Tx, worker: str, by: str | None, action: str, *, enabled: bool) -> WorkerRecord:
    row = await tx.one(q.enable_worker, id=worker, enabled=enabled) if is_uuid(worker) else None
    record = _known(row, worker)
    await audited(tx, by, action, worker)
    return record


async def mark_silent(tx: Tx) -> list[WorkerRecord]:
    """Mark workers without a heartbeat for `offline_seconds` as offline; their next heartbeat reverts it."""
    return [WorkerRecord.from_row(row) for row in await tx.all(q.silent_workers)]


async def forget(tx: Tx, seconds: float) -> int:
    """Delete local worker processes that ended long ago and hold no leases; disabled ones stay."""
    check_number(seconds, "seconds")
    gone = [(row["id"], row["name"]) for row in await tx.all(q.forget_workers, seconds=float(seconds))]
    if gone:
        await tx.all(q.keep_worker_names, past=gone)  # attempts show them
        await tx.all(q.prune_events, ids=[worker for worker, _ in gone])
    return len(gone)
