"""Keys, for operators: made, listed, handed over, taken back. The text of a key is in one answer, and nowhere else."""

from __future__ import annotations

from datetime import datetime

from holdfast.engine import keys
from holdfast.model.key import Key, Kind, NewKey
from holdfast.server.admin import deed, operate
from holdfast.server.route import Asked, Reply
from holdfast.server.server import Server
from holdfast.wire import KeyIntent, KeyIssued, KeysAnswer, KeyView


async def page(server: Server, asked: Asked) -> Reply:
    now = await server.engine.now()
    return Reply(200, KeysAnswer([_view(key, now) for key in await server.engine.keys()]))


async def create(server: Server, asked: Asked) -> Reply:
    new = _new_key(asked.body)
    told = deed(asked, "key.create", None, kind=new.kind, tenant=new.tenant, name=new.name, worker=new.worker_id)
    made = await operate(
        server,
        told,
        lambda tx, rules: keys.create(tx, rules, new),
        key=lambda made: made.key.id,
        scopes=lambda made: sorted(made.key.scopes),
    )
    return await _issued(server, made, 201)


async def rotate(server: Server, asked: Asked) -> Reply:
    """A new key with the same rights; the old one is good for the overlap yet."""
    key_id, overlap = asked.path["key_id"], asked.query.overlap_seconds
    made = await operate(
        server,
        deed(asked, "key.rotate", key_id, overlapSeconds=overlap),
        lambda tx, rules: keys.rotate(tx, rules, key_id, overlap),
        key=lambda made: made.key.id,
    )
    return await _issued(server, made, 201)


async def revoke(server: Server, asked: Asked) -> Reply:
    key_id = asked.path["key_id"]
    key = await operate(server, deed(asked, "key.revoke", key_id), lambda tx, _: keys.revoke(tx, key_id))
    return Reply(200, _view(key, await server.engine.now()))


async def _issued(server: Server, made: keys.Issued, status: int) -> Reply:
    return Reply(status, KeyIssued(_view(made.key, await server.engine.now()), made.text))


def _new_key(intent: KeyIntent) -> NewKey:
    return NewKey(
        kind=Kind(intent.kind),
        tenant=intent.tenant,
        name=intent.name,
        scopes=intent.scopes,
        queues=intent.queues,
        worker_id=intent.worker_id,
        expires_in=intent.expires_in_seconds,
        rate_per_second=intent.rate_per_second,
    )


def _view(key: Key, now: datetime) -> KeyView:
    return KeyView(
        key_id=key.id,
        kind=key.kind,
        tenant=key.tenant,
        status=key.status(now),
        scopes=sorted(key.scopes),
        created_at=key.created_at,
        name=key.name,
        queues=None if key.queues is None else list(key.queues),
        worker_id=key.worker_id,
        rate_per_second=key.rate_per_second,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        used_at=key.used_at,
    )
