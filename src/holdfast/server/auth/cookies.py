"""The session cookie and the CSRF token that unsafe requests need besides it.

A cross-origin page can make a browser send the cookie but cannot read responses, and only those have the token. The
token is derived from the cookie, so it is not stored.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

from holdfast.errors import Forbidden
from holdfast.server.http.route import Headers

SAFE = ("GET", "HEAD")
_NAME, _SECURE_PREFIX = "holdfast_session", "__Host-"
_TOKEN = re.compile(rb"(?:^|[;,\s])(__Host-|)holdfast_session=([0-9a-f]{64})(?=[;,\s]|$)")


def is_encrypted(headers: Headers, behind_tls: bool) -> bool:
    """Whether the client uses HTTPS. A client that lies about it only locks itself out."""
    return behind_tls or headers.get(b"x-forwarded-proto") == b"https"


def cookie(token: str, seconds: float, *, encrypted: bool) -> tuple[bytes, bytes]:
    """Over HTTPS the name has the prefix `__Host-`: browsers accept it from this host only, so a sibling domain cannot
    set it."""
    name = f"{_SECURE_PREFIX if encrypted else ''}{_NAME}={token}"
    words = [name, "Path=/", f"Max-Age={seconds:.0f}", "HttpOnly", "SameSite=Lax", *(["Secure"] if encrypted else [])]
    return b"set-cookie", "; ".join(words).encode()


def token_in(headers: Headers, *, behind_tls: bool) -> bytes | None:
    if (cookies := headers.get(b"cookie")) is None:
        return None
    encrypted = is_encrypted(headers, behind_tls)
    return next((token for prefix, token in _TOKEN.findall(cookies) if bool(prefix) is encrypted), None)


def csrf_of(token: bytes) -> str:
    return hmac.new(token, b"holdfast csrf", sha256).hexdigest()


def check_csrf(token: bytes, headers: Headers, method: str) -> None:
    if method in SAFE or hmac.compare_digest(csrf_of(token).encode(), headers.get(b"x-csrf-token", b"")):
        return
    raise Forbidden(
        "an unsafe request with a session cookie needs the CSRF token of `GET /session` in X-CSRF-Token",
        code="csrf_refused",
    )
