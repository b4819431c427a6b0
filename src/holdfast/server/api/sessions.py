"""Browser sessions: sign in with a key, see who is signed in, sign out."""

from __future__ import annotations

from datetime import datetime

from holdfast import wire
from holdfast.errors import Forbidden, Unauthorized
from holdfast.model.key import Kind, digest_of
from holdfast.server.auth.authenticator import Caller
from holdfast.server.auth.cookies import check_csrf, cookie, csrf_of, is_encrypted
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState


async def sign_in(server: ServerState, request: HttpRequest) -> Reply:
    """For a key that is good, a cookie. Who tries keys is slowed down as anywhere."""
    if request.headers.get(b"sec-fetch-site") == b"cross-site":
        raise Forbidden("a page from elsewhere cannot sign anybody in here", code="cross_origin_forbidden")
    caller = await server.auth.authenticate_key(request.body.key, request.source)
    if caller.kind is Kind.WORKER:
        raise Forbidden("a worker's key is for workers; sign in with a client's or an admin's")
    opened = await server.engine.sessions.begin(caller.name, server.settings.session_seconds)
    view = _view(caller, opened.token.encode(), opened.expires_at)
    return Reply(201, view, (_cookie(server, request, opened.token, server.settings.session_seconds),))


async def who(server: ServerState, request: HttpRequest) -> Reply:
    token, caller, expires_at = await _session(server, request)
    return Reply(200, _view(caller, token, expires_at))


async def sign_out(server: ServerState, request: HttpRequest) -> Reply:
    """The cookie is worth nothing from now on; on other servers within seconds."""
    token, _, _ = await _session(server, request)
    check_csrf(token, request.headers, "DELETE")
    await server.auth.end_session(digest_of(token))
    return Reply(204, headers=(_cookie(server, request, "", 0),))


async def _session(server: ServerState, request: HttpRequest) -> tuple[bytes, Caller, datetime]:
    token = server.auth.token_in(request.headers)
    found = None if token is None else await server.auth.session_of(token)
    if token is None or found is None:
        raise Unauthorized("there is no session, or it is over: sign in with a key", code="session_over")
    return token, found.caller, found.expires_at


def _view(caller: Caller, token: bytes, expires_at: datetime) -> wire.SessionView:
    return wire.SessionView(
        key_id=caller.name,
        kind=str(caller.kind),
        tenant=caller.tenant,
        subject=caller.subject,
        scopes=sorted(caller.scopes),
        csrf_token=csrf_of(token),
        expires_at=expires_at,
    )


def _cookie(server: ServerState, request: HttpRequest, token: str, seconds: float) -> tuple[bytes, bytes]:
    return cookie(token, seconds, encrypted=is_encrypted(request.headers, server.settings.behind_tls))
