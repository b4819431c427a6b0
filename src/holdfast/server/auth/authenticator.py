"""Authenticates requests: API keys, the admin secret, browser sessions, and scopes."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

import msgspec

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.admin.keys import LiveKey
from holdfast.errors import Forbidden, Malformed, StoreError, Unauthorized
from holdfast.model.key import SCOPES, KeyText, Kind, digest_of, extension_of, parse
from holdfast.model.loopback import is_loopback
from holdfast.outage_log import LoopFailures
from holdfast.server.auth.cookies import check_csrf, token_in
from holdfast.server.auth.rate_limit import FailedLogins, RateLimit, source_of
from holdfast.server.auth.ttl_cache import TtlCache
from holdfast.server.http.route import Headers

USED_SECONDS = 60.0  # interval of writing down which keys were used

log = logging.getLogger(__name__)

_NO_DIGEST = "0" * 64  # compared with unknown keys, so that they take as long as known ones
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[^:\[\]]{1,255})(?::\d{1,5})?")


class Caller(msgspec.Struct, frozen=True):
    """The authenticated caller of a request; the tenant comes from the key, never from the request."""

    kind: Kind | None  # None: no key
    name: str  # for the audit log: the id of a key, "admin secret" or "local"
    tenant: str = "default"
    scopes: frozenset[str] = frozenset()
    worker: str | None = None
    queues: tuple[str, ...] | None = None  # a worker key may be bound to these
    user: str | None = None  # the subject of the key, if any
    extended: bool = False  # has every scope of every extension
    session: str | None = None  # the digest of the session cookie, if any

    @property
    def subject(self) -> str:
        """The subject of the key, else the id of the key."""
        return self.name if self.user is None else self.user

    def may(self, scope: str) -> bool:
        return scope in self.scopes or (self.extended and extension_of(scope) is not None)


class SessionHolder(NamedTuple):
    caller: Caller
    rate: float | None
    expires_at: datetime


ANONYMOUS = Caller(None, "anonymous")  # on routes that need no key
LOCAL_CLIENT = Caller(None, "local", scopes=frozenset(SCOPES[Kind.CLIENT]), user="default", extended=True)
ADMIN = Caller(Kind.ADMIN, "admin secret", scopes=frozenset(SCOPES[Kind.ADMIN]), extended=True)


class Authenticator:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        admin_secret: str,
        allow_local: bool,
        rate_per_second: float | None = None,
        behind_tls: bool = False,
    ) -> None:
        self._engine, self._clock, self._behind_tls = engine, clock, behind_tls
        self._secret = sha256(admin_secret.encode()).digest() if admin_secret else _NO_DIGEST.encode()
        self._open, self._rate = allow_local, rate_per_second
        self._keys = TtlCache(engine.keys.find_live, clock)
        self._kinds = TtlCache(lambda _: engine.keys.kinds(), clock)
        self._failures, self._rates = FailedLogins(clock), RateLimit(clock)
        self._sessions = TtlCache(engine.sessions.find_live, clock)
        self._used: set[str] = set()
        self._used_sessions: set[str] = set()
        self._noting = LoopFailures("note which keys were used", log)

    async def authenticate(
        self, headers: Headers, source: str, scope: str | None, *, local: bool = False, method: str = "POST"
    ) -> Caller:
        """The caller, if it has the scope. A key that is sent must be valid, even where none is needed.

        `local`: on a loopback address no key is needed. A session cookie counts only without other credentials; an
        expired one is ignored.
        """
        if scope is None:
            return ANONYMOUS
        key, secret = headers.get(b"authorization"), headers.get(b"x-admin-secret")
        token = self.token_in(headers) if key is None and secret is None else None
        if token is not None and (session := await self.session_of(token)) is not None:
            check_csrf(token, headers, method)
            caller, rate = session.caller, session.rate
        elif key is None and secret is None:
            if local and self._open:
                _reject_cross_origin(headers)
                return ANONYMOUS
            if not LOCAL_CLIENT.may(scope):
                raise _unauthorized()
            caller, rate = await self._local_client(headers), None
        elif secret is None:
            caller, rate = await self._from_key(key or b"", source)
        else:
            caller, rate = await self._from_admin_secret(secret, key, source), None
        self._apply_rate_limit(caller, rate)
        if not caller.may(scope):
            raise Forbidden(f"this needs the scope {scope}, which {_shown(caller)} does not have")
        return caller

    def _apply_rate_limit(self, caller: Caller, rate: float | None) -> None:
        if (rate := rate or self._rate) is not None:
            self._rates.take(caller.name, rate)

    async def check_still_valid(self, caller: Caller) -> None:
        """For streams and long polls: raise if the key or session has been revoked or has expired."""
        if caller is LOCAL_CLIENT:
            await self._require_open()
        elif caller is not ANONYMOUS and caller is not ADMIN and await self._keys.get(caller.name) is None:
            raise _unauthorized()
        if caller.session is not None and await self._sessions.get(caller.session) is None:
            raise _unauthorized()

    async def run(self) -> None:
        """Periodically record which keys were used, until cancelled."""
        while True:
            await self._clock.sleep(USED_SECONDS)
            await self.note_used()

    async def note_used(self) -> None:
        used, self._used = self._used, set()
        sessions, self._used_sessions = self._used_sessions, set()
        try:
            if used:
                await self._engine.keys.mark_used(sorted(used))
                self._noting.succeeded()
            if sessions:
                await self._engine.sessions.mark_used(sorted(sessions))
        except StoreError as error:
            self._noting.failed(error)

    # -- sessions -------------------------------------------------------------------------------------------------

    async def authenticate_key(self, key: str, source: str) -> Caller:
        """The caller of a valid key; otherwise a failed login. Counts against the rate limit of the key."""
        caller, rate = await self._from_key(b"Bearer " + key.encode(errors="replace"), source)
        self._apply_rate_limit(caller, rate)
        return caller

    def token_in(self, headers: Headers) -> bytes | None:
        """The session token in the cookie."""
        return token_in(headers, behind_tls=self._behind_tls)

    async def session_of(self, token: bytes) -> SessionHolder | None:
        """None: the session has expired or does not exist, or its key is no longer valid."""
        digest = digest_of(token)
        session = await self._sessions.get(digest)
        found = None if session is None else await self._keys.get(session.key_id)
        if session is None or found is None:
            return None
        self._used.add(found.key.id)
        self._used_sessions.add(digest)
        return SessionHolder(_caller(found, digest), found.key.rate_per_second, session.expires_at)

    async def end_session(self, digest: str) -> None:
        await self._engine.sessions.end(digest)
        self._sessions.forget(digest)

    # -- credentials ---------------------------------------------------------------------------------------------

    async def _local_client(self, headers: Headers) -> Caller:
        """On a loopback address, until the first client key exists, local clients need no key."""
        await self._require_open()
        _reject_cross_origin(headers)
        return LOCAL_CLIENT

    async def _require_open(self) -> None:
        if not self._open or Kind.CLIENT in await self._kinds.get("all"):
            raise _unauthorized()

    async def _from_key(self, shown: bytes, source: str) -> tuple[Caller, float | None]:
        """A valid key is never blocked by failed logins from its address: 256 bits cannot be guessed."""
        read = _parse_bearer(shown)
        if read is None:
            raise self._login_failed(source_of(source))
        text, digest = read
        found = await self._keys.get(text.id)
        good = compare_digest(digest, _NO_DIGEST if found is None else found.digest)
        if found is None or not good or found.key.kind is not text.kind:
            raise self._login_failed(source_of(source), f"key {text.id}")
        self._used.add(text.id)
        return _caller(found), found.key.rate_per_second

    async def _from_admin_secret(self, secret: bytes, key: bytes | None, source: str) -> Caller:
        """A secret that people chose can be guessed: after too many failures it is not checked."""
        self._failures.check(source_of(source))
        if not compare_digest(sha256(secret).digest(), self._secret):
            raise self._login_failed(source_of(source))
        if key is not None and (await self._from_key(key, source))[0].kind is not Kind.ADMIN:
            raise _unauthorized()  # conflicting credentials
        return ADMIN

    def _login_failed(self, *names: str) -> Unauthorized:
        self._failures.check(*names)
        self._failures.add(*names)
        return _unauthorized()


@lru_cache(maxsize=1024)  # parsing is the slowest step, and keys repeat
def _parse_bearer(shown: bytes) -> tuple[KeyText, str] | None:
    text = parse(shown[7:].strip()) if shown[:7].lower() == b"bearer " else None
    return None if text is None else (text, digest_of(text.secret))


def _caller(found: LiveKey, session: str | None = None) -> Caller:
    key = found.key
    return Caller(key.kind, key.id, key.tenant, key.scopes, key.worker_id, key.queues, key.subject, session=session)


def _unauthorized() -> Unauthorized:
    """One message for all failures, so that it reveals nothing."""
    return Unauthorized("a valid key is required: `Authorization: Bearer holdfast_...` or `X-Admin-Secret: ...`")


def _shown(caller: Caller) -> str:
    return f"the {caller.name}" if caller is ADMIN else f"the key {caller.name}"


def _reject_cross_origin(headers: Headers) -> None:
    if not _is_local(headers.get(b"host", b"")):
        raise Malformed(
            "without keys this server accepts only requests to a loopback host name, such as 127.0.0.1",
            code="wrong_host",
        )
    if not _is_of_local_page(headers.get(b"origin")):
        raise Forbidden("without keys this server rejects cross-origin requests", code="cross_origin_forbidden")


@lru_cache(maxsize=64)
def _is_local(host: bytes) -> bool:
    """Against DNS rebinding: the Host header must name a loopback address."""
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found[1].decode("latin-1").strip("[]").lower())


@lru_cache(maxsize=64)
def _is_of_local_page(origin: bytes | None) -> bool:
    """Browsers send the origin of the page; a cross-origin request can do harm without reading the response."""
    if origin is None:
        return True
    scheme, _, host = origin.partition(b"://")
    return scheme in (b"http", b"https") and _is_local(host)
