"""Who asks, and whether they may."""

from __future__ import annotations

import msgspec

from holdfast.engine import Engine
from holdfast.errors import Forbidden
from holdfast.model.key import SCOPES, Kind, Scope
from holdfast.server.route import Headers


class Caller(msgspec.Struct, frozen=True):
    """Whoever a request comes from; the tenant is the key's, never the request's."""

    kind: Kind | None  # None: nobody in particular
    name: str  # for the audit: a key's id, "admin secret", "anybody"
    tenant: str = "default"
    scopes: frozenset[Scope] = frozenset()
    worker: str | None = None
    queues: tuple[str, ...] | None = None  # a worker's key may be bound to these


ANYBODY = Caller(None, "anybody", scopes=frozenset(SCOPES[Kind.CLIENT]))


class Auth:
    def __init__(self, engine: Engine, *, admin_secret: str, open_to_anybody: bool) -> None:
        self._engine, self._secret, self._open = engine, admin_secret, open_to_anybody

    async def admit(self, headers: Headers, source: str, scope: Scope | None) -> Caller:
        if scope is None or scope in ANYBODY.scopes:
            return ANYBODY
        raise Forbidden("not yet")
