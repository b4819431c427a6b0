"""Routes of browser sessions: sign in with a key, get the session, sign out."""

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
    """Set a session cookie for a valid key; failed logins are rate limited."""
    if request.headers.get(b"sec-fetch-site") == b"cross-site":
        raise Forbidden("cross-origin sign-in is not allowed", code="cross_origin_forbidden")
    caller = await server.auth.authenticate_key(request.body.key, request.source)
    if caller.kind is Kind.WORKER:
        raise Forbidden("a worker key cannot sign in; use a client key or an admin key")
    opened = await server.engine.sessions.begin(caller.name, server.settings.session_seconds)
    view = _view(caller, opened.token.encode(), opened.expires_at)
    return Reply(201, view, (_cookie(server, request, opened.token, server.settings.session_seconds),))


async def who(server: ServerState, request: HttpRequest) -> Reply:
    token, caller, expires_at = await _session(server, request)
    return Reply(200, _view(caller, token, expires_at))


async def sign_out(server: ServerState, request: HttpRequest) -> Reply:
    """End the session; other servers notice within seconds."""
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
    scopes, csrf_token = sorted(caller.scopes), csrf_of(token)
    return wire.SessionView.of(
        caller, key_id=caller.name, kind=str(caller.kind), scopes=scopes, csrf_token=csrf_token, expires_at=expires_at
    )


def _cookie(server: ServerState, request: HttpRequest, token: str, seconds: float) -> tuple[bytes, bytes]:
    return cookie(token, seconds, encrypted=is_encrypted(request.headers, server.settings.behind_tls))
