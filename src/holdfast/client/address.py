"""Validates the server URL and the key of a client."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from holdfast.errors import Invalid
from holdfast.model.loopback import is_loopback

log = logging.getLogger("holdfast.client")


def checked_address(url: str) -> str:
    """`https://jobs.example.com`, optionally with a path prefix; without a trailing slash."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError):
        raise _invalid("it is malformed") from None
    if parts.scheme not in ("http", "https"):
        raise _invalid("it must start with https:// or http://")
    if not host or port == 0:
        raise _invalid("it has no host" if not host else "port 0 is invalid")
    if parts.username is not None or parts.password is not None:
        raise _invalid("it must not contain a key or password; pass the key separately")
    if parts.query or parts.fragment:
        raise _invalid("it must not contain a query or fragment")
    if parts.scheme == "http" and not is_loopback(host):
        log.warning("keys and payloads are sent to %s unencrypted; use https:// on untrusted networks", host)
    return parts._replace(path=parts.path.rstrip("/")).geturl()


def checked_key(key: str) -> str:
    """The key is sent in a header. The error does not contain it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise Invalid("the key contains spaces, line breaks or other invalid characters", code="malformed_key")
    return key


def _invalid(why: str) -> Invalid:
    return Invalid(
        f"invalid server URL: {why}; it should look like https://jobs.example.com", code="invalid_server_url"
    )
