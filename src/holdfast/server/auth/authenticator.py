"""Who asks, and whether they may."""

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
from holdfast.model.key import SCOPES, KeyText, Kind, Scope, digest_of, parse
from holdfast.model.loopback import is_loopback
from holdfast.outage_log import LoopFailures
from holdfast.server.auth.cookies import check_csrf, token_in
from holdfast.server.auth.rate_limit import FailedLogins, RateLimit, source_of
from holdfast.server.auth.ttl_cache import TtlCache
from holdfast.server.http.route import Headers

USED_SECONDS = 60.0  # so often is it written down which keys were used

log = logging.getLogger(__name__)

_NO_DIGEST = "0" * 64  # what an unknown key is compared with: it takes as long as a known one
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[^:\[\]]{1,255})(?::\d{1,5})?")


class Caller(msgspec.Struct, frozen=True):
    """Whoever a request comes from; the tenant is the key's, never the request's."""

    kind: Kind | None  # None: nobody in particular
    name: str  # for the audit: a key's id, "admin secret", "anybody"
    tenant: str = "default"
    scopes: frozenset[str] = frozenset()
    worker: str | None = None
    queues: tuple[str, ...] | None = None  # a worker's key may be bound to these
    user: str | None = None  # the subject of its key, if that has one
    extended: bool = False  # it has every scope of every extension
    session: str | None = None  # the digest of its cookie, if it came with one

    @property
    def subject(self) -> str:
        """The user that it stands for: the subject of its key, else the id of the key."""
        return self.name if self.user is None else self.user

    def may(self, scope: str) -> bool:
        return scope in self.scopes or (self.extended and not isinstance(scope, Scope))


class SessionHolder(NamedTuple):
    caller: Caller
    rate: float | None
    expires_at: datetime


ANONYMOUS = Caller(None, "nobody")  # on routes that ask for no key
LOCAL_CLIENT = Caller(None, "anybody", scopes=frozenset(SCOPES[Kind.CLIENT]), extended=True)
OPERATOR = Caller(Kind.ADMIN, "admin secret", scopes=frozenset(SCOPES[Kind.ADMIN]), extended=True)


class Authenticator:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        admin_secret: str,
        open_to_anybody: bool,
        rate_per_second: float | None = None,
        behind_tls: bool = False,
    ) -> None:
        self._engine, self._clock, self._behind_tls = engine, clock, behind_tls
        self._secret = sha256(admin_secret.encode()).digest() if admin_secret else _NO_DIGEST.encode()
        self._open, self._rate = open_to_anybody, rate_per_second
        self._keys = TtlCache(engine.keys.find_live, clock)
        self._kinds = TtlCache(lambda _: engine.keys.kinds(), clock)
        self._failures, self._rates = FailedLogins(clock), RateLimit(clock)
        self._sessions = TtlCache(engine.sessions.find_live, clock)
        self._used: set[str] = set()
        self._used_sessions: set[str] = set()
        self._noting = LoopFailures("note which keys were used", log)

    async def admit(
        self, headers: Headers, source: str, scope: str | None, *, local: bool = False, method: str = "POST"
    ) -> Caller:
        """Whoever it is that may do this; a key is judged by itself, also where anybody may come in.

        `local`: on a loopback address that is whoever is on this machine, keys or no keys. A cookie counts where
        nothing else is shown; one that is over is as good as none.
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
                _refuse_foreign(headers)
                return ANONYMOUS
            if not LOCAL_CLIENT.may(scope):
                raise _unauthorized()
            caller, rate = await self._anybody(headers), None
        elif secret is None:
            caller, rate = await self._holder(key or b"", source)
        else:
            caller, rate = await self._operator(secret, key, source), None
        self._pace(caller, rate)
        if not caller.may(scope):
            raise Forbidden(f"this needs the scope {scope}, which {_shown(caller)} does not have")
        return caller

    def _pace(self, caller: Caller, rate: float | None) -> None:
        if (rate := rate or self._rate) is not None:
            self._rates.take(caller.name, rate)

    async def still(self, caller: Caller) -> None:
        """Asked now and then by whatever goes on for long: is the key that began it good yet?"""
        if caller is LOCAL_CLIENT:
            await self._refuse_if_closed()
        elif caller is not ANONYMOUS and caller is not OPERATOR and await self._keys.get(caller.name) is None:
            raise _unauthorized()
        if caller.session is not None and await self._sessions.get(caller.session) is None:
            raise _unauthorized()

    async def run(self) -> None:
        """Write down which keys were used, beside the requests, until cancelled."""
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

    async def holder_of(self, key: str, source: str) -> Caller:
        """Who holds this key, if it is good; else it is a failed login. It counts as a request of the key."""
        caller, rate = await self._holder(b"Bearer " + key.encode(errors="replace"), source)
        self._pace(caller, rate)
        return caller

    def token_in(self, headers: Headers) -> bytes | None:
        """Of the session, as the cookie says it."""
        return token_in(headers, behind_tls=self._behind_tls)

    async def session_of(self, token: bytes) -> SessionHolder | None:
        """None: it is over, was never begun, or its key is not good any more."""
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

    # -- the three ways in ----------------------------------------------------------------------------------------

    async def _anybody(self, headers: Headers) -> Caller:
        """On a loopback address, until the first client's key is made: whoever is on this machine."""
        await self._refuse_if_closed()
        _refuse_foreign(headers)
        return LOCAL_CLIENT

    async def _refuse_if_closed(self) -> None:
        if not self._open or Kind.CLIENT in await self._kinds.get("all"):
            raise _unauthorized()

    async def _holder(self, shown: bytes, source: str) -> tuple[Caller, float | None]:
        """A right key is let in whatever others do at its address or with its id; nobody guesses 256 bits."""
        read = _credential(shown)
        if read is None:
            raise self._failed(source_of(source))
        text, digest = read
        found = await self._keys.get(text.id)
        good = compare_digest(digest, _NO_DIGEST if found is None else found.digest)
        if found is None or not good or found.key.kind is not text.kind:
            raise self._failed(source_of(source), f"key {text.id}")
        self._used.add(text.id)
        return _caller(found), found.key.rate_per_second

    async def _operator(self, secret: bytes, key: bytes | None, source: str) -> Caller:
        """A secret that people chose can be guessed: who fails too often is not even heard."""
        self._failures.refuse(source_of(source))
        if not compare_digest(sha256(secret).digest(), self._secret):
            raise self._failed(source_of(source))
        if key is not None and (await self._holder(key, source))[0].kind is not Kind.ADMIN:
            raise _unauthorized()  # two answers to the question who asks
        return OPERATOR

    def _failed(self, *names: str) -> Unauthorized:
        self._failures.refuse(*names)
        self._failures.add(*names)
        return _unauthorized()


@lru_cache(maxsize=1024)  # the same keys come again and again, and reading one takes longer than all the rest
def _credential(shown: bytes) -> tuple[KeyText, str] | None:
    text = parse(shown[7:].strip()) if shown[:7].lower() == b"bearer " else None
    return None if text is None else (text, digest_of(text.secret))


def _caller(found: LiveKey, session: str | None = None) -> Caller:
    key = found.key
    return Caller(key.kind, key.id, key.tenant, key.scopes, key.worker_id, key.queues, key.subject, session=session)


def _unauthorized() -> Unauthorized:
    """The same to all: who may not come in learns nothing about who may."""
    return Unauthorized("show a key that is good here: `Authorization: Bearer holdfast_...` or `X-Admin-Secret: ...`")


def _shown(caller: Caller) -> str:
    return f"the {caller.name}" if caller is OPERATOR else f"the key {caller.name}"


def _refuse_foreign(headers: Headers) -> None:
    if not _is_local(headers.get(b"host", b"")):
        raise Malformed(
            "without keys this server answers only to the names of its own machine, such as 127.0.0.1",
            code="wrong_host",
        )
    if not _is_of_local_page(headers.get(b"origin")):
        raise Forbidden(
            "without keys this server does not answer to pages from elsewhere", code="cross_origin_forbidden"
        )


@lru_cache(maxsize=64)
def _is_local(host: bytes) -> bool:
    """Of this machine: a page from elsewhere whose name was made to lead here has another one (DNS rebinding)."""
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found[1].decode("latin-1").strip("[]").lower())


@lru_cache(maxsize=64)
def _is_of_local_page(origin: bytes | None) -> bool:
    """Browsers name the page that asks. One from elsewhere need not see our answer to do harm with its question."""
    if origin is None:
        return True
    scheme, _, host = origin.partition(b"://")
    return scheme in (b"http", b"https") and _is_local(host)
