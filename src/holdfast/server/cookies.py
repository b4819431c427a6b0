"""The cookie of a browser session, and the token that a request needs besides if it changes something.

A page from elsewhere can make a browser send our cookie, but cannot read our answers: the token is in those alone. It
is made from the cookie, so that nothing of it need be stored.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

from holdfast.errors import Forbidden
from holdfast.server.route import Headers

COOKIE = "holdfast_session"
SAFE = ("GET", "HEAD")
_TOKEN = re.compile(rb"(?:^|[;,\s])holdfast_session=([0-9a-f]{64})(?=[;,\s]|$)")


def token_in(headers: Headers) -> bytes | None:
    found = _TOKEN.search(headers.get(b"cookie", b""))
    return None if found is None else found[1]


def csrf_of(token: bytes) -> str:
    return hmac.new(token, b"holdfast csrf", sha256).hexdigest()


def check_csrf(token: bytes, headers: Headers, method: str) -> None:
    if method in SAFE or hmac.compare_digest(csrf_of(token).encode(), headers.get(b"x-csrf-token", b"")):
        return
    raise Forbidden(
        "a request with a session's cookie that changes something needs the token of `GET /session` in X-CSRF-Token",
        code="csrf_refused",
    )
