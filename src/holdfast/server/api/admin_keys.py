"""Admin routes for API keys: create, list, rotate, revoke. The key itself is returned once."""

from __future__ import annotations

import logging
from datetime import datetime

from holdfast.engine.admin.keys import Issued
from holdfast.model.key import Key, Kind, NewKey, check_against
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import KeyIntent, KeyIssued, KeysResponse, KeyView

log = logging.getLogger(__name__)


async def page(server: ServerState, request: HttpRequest) -> Reply:
    now = await server.engine.reads.now()
    return Reply(200, KeysResponse([_view(key, now) for key in await server.engine.keys.all()]))


async def create(server: ServerState, request: HttpRequest) -> Reply:
    new = _new_key(request.body)
    if strange := check_against(new.scopes or (), server.extension_scopes):
        log.warning(
            "a key was created with scopes of extensions that this server does not have: %s", ", ".join(strange)
        )
    return await _issued(server, await server.engine.keys.create(new, by=request.caller.name))


async def rotate(server: ServerState, request: HttpRequest) -> Reply:
    """Issue a replacement with the same scopes; the old key stays valid during the overlap."""
    overlap = request.query.overlap_seconds
    made = await server.engine.keys.rotate(request.path["key_id"], overlap_seconds=overlap, by=request.caller.name)
    return await _issued(server, made)


async def revoke(server: ServerState, request: HttpRequest) -> Reply:
    key = await server.engine.keys.revoke(request.path["key_id"], by=request.caller.name)
    return Reply(200, _view(key, await server.engine.reads.now()))


async def _issued(server: ServerState, made: Issued) -> Reply:
    return Reply(201, KeyIssued(_view(made.key, await server.engine.reads.now()), made.text))


def _new_key(intent: KeyIntent) -> NewKey:
    return NewKey(
        kind=Kind(intent.kind),
        tenant=intent.tenant,
        name=intent.name,
        subject=intent.subject,
        scopes=intent.scopes,
        queues=intent.queues,
        worker_id=intent.worker_id,
        expires_in=intent.expires_in_seconds,
        rate_per_second=intent.rate_per_second,
    )


def _view(key: Key, now: datetime) -> KeyView:
    queues = None if key.queues is None else list(key.queues)
    return KeyView.of(key, key_id=key.id, status=key.status(now), scopes=sorted(key.scopes), queues=queues)
