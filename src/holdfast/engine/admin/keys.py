"""API keys: create, look up, rotate, revoke. The secret is returned once, on creation; only its digest is stored."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.engine.admin import workers
from holdfast.engine.admin.audit import audited
from holdfast.engine.context import EngineContext
from holdfast.errors import Conflict, NotFound
from holdfast.model import Liveness, WorkerRecord
from holdfast.model.key import ID_BITS, SECRET_BITS, Key, Kind, NewKey, digest_of, is_key_id, text_of
from holdfast.model.names import quoted
from holdfast.model.numbers import check_number
from holdfast.store import Row, Tx, q
from holdfast.store.queries import Query


class Issued(NamedTuple):
    """A new key with its secret text, which is not stored."""

    key: Key
    text: str


class LiveKey(NamedTuple):
    """A key that is neither revoked nor expired, with the digest of its secret."""

    key: Key
    digest: str


async def create(tx: Tx, ctx: EngineContext, new: NewKey, *, by: str | None = None) -> Issued:
    new.check()
    if new.worker_id is not None:
        await workers.get(tx, new.worker_id)
    made = await _issue(tx, ctx, new)
    await audited(tx, by, "key.create", made.key.id, made.key.rights)
    return made


async def _issue(tx: Tx, ctx: EngineContext, new: NewKey) -> Issued:
    key_id, secret = f"{ctx.ids.bits(ID_BITS):016x}", f"{ctx.ids.bits(SECRET_BITS):064x}"
    digest, scopes = digest_of(secret.encode()), msgspec.json.encode(new.stored_scopes()).decode()
    made = (key_id, new.kind.value, new.tenant, new.name, new.subject, digest, scopes, new.worker_id)
    row = await tx.one(q.put_key, made=[(*made, new.rate_per_second, new.expires_in)])
    return Issued(Key.from_row(row), text_of(new.kind, key_id, secret))


async def register(
    tx: Tx, ctx: EngineContext, new: workers.NewWorker, queues: list[str] | None = None, *, by: str | None = None
) -> tuple[WorkerRecord, str]:
    """Register a worker that uses HTTP, and issue its key, which may be limited to some queues."""
    worker = await workers.register(tx, ctx, new)
    await tx.one(q.beat_worker, worker=worker.id, liveness=Liveness.ACTIVE, slots=None)
    made = await create(tx, ctx, NewKey(kind=Kind.WORKER, worker_id=worker.id, name=new.name, queues=queues))
    registered = await workers.get(tx, worker.id)
    await audited(tx, by, "worker.register", worker.id, {"name": new.name, "queues": queues})
    return registered, made.text


async def find_live(tx: Tx, key_id: str) -> LiveKey | None:
    row = await tx.one(q.live_key, id=key_id)
    return None if row is None else LiveKey(Key.from_row(row), row["digest"])


async def get(tx: Tx, key_id: str) -> Key:
    return _known(await _found(tx, q.key, key_id), key_id)


async def listed(tx: Tx) -> list[Key]:
    return [Key.from_row(row) for row in await tx.all(q.keys)]


async def kinds(tx: Tx) -> frozenset[Kind]:
    return frozenset(Kind(row["kind"]) for row in await tx.all(q.kinds_of_keys))


async def revoke(tx: Tx, key_id: str, *, by: str | None = None) -> Key:
    """Revoke at once. A repeat does not change the time of the first call."""
    key = _known(await _found(tx, q.revoke_key, key_id), key_id)
    await audited(tx, by, "key.revoke", key_id)
    return key


async def revoke_worker(tx: Tx, worker: str, *, by: str | None = None) -> list[Key]:
    """Revoke all keys of a worker and disable it: it claims no more jobs, and its reports are rejected."""
    await workers.disable(tx, worker)
    revoked = [Key.from_row(row) for row in await tx.all(q.revoke_keys_of_worker, worker=worker)]
    await audited(tx, by, "worker.revoke", worker, {"keys": [key.id for key in revoked]})
    return revoked


async def rotate(
    tx: Tx, ctx: EngineContext, key_id: str, *, overlap_seconds: float = 86_400, by: str | None = None
) -> Issued:
    """Rotate a key: issue a replacement with the same rights and lifetime; the old key expires after the overlap."""
    check_number(overlap_seconds, "overlap_seconds")
    old = await get(tx, key_id)
    if await tx.one(q.end_key_soon, id=key_id, seconds=float(overlap_seconds)) is None:
        raise Conflict(f"key {key_id} is revoked or expired; create a new one", code="key_inactive")
    made = await _issue(tx, ctx, NewKey(**{name: getattr(old, name) for name in NewKey.__struct_fields__}))
    await audited(tx, by, "key.rotate", key_id, {"heir": made.key.id, "overlapSeconds": overlap_seconds})
    return made


async def mark_used(tx: Tx, key_ids: list[str]) -> None:
    await tx.all(q.keys_were_used, ids=key_ids)


async def _found(tx: Tx, query: Query, key_id: str) -> Row | None:
    return await tx.one(query, id=key_id) if is_key_id(key_id) else None


def _known(row: Row | None, key_id: str) -> Key:
    if row is None:
        raise NotFound(f"no key {quoted(key_id)}", code="key_not_found")
    return Key.from_row(row)
