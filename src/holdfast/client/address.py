"""Where a server is, and the key it is spoken to with: refused at once where they cannot be right."""

from __future__ import annotations

import logging
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import Invalid
from holdfast.model.loopback import is_loopback

log = logging.getLogger("holdfast.client")


def checked_address(url: str) -> str:
    """`https://jobs.example.com`, a path in front of ours allowed; without the slash at its end."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError):
        raise _invalid("it cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise _invalid("it begins with neither https:// nor http://")
    if not host or port == 0:
        raise _invalid("it names no host" if not host else "its port is 0")
    if parts.username is not None or parts.password is not None:
        raise _invalid("a key or a password does not belong into it; the key is given apart")
    if parts.query or parts.fragment:
        raise _invalid("nothing may follow its path")
    if parts.scheme == "http" and not is_loopback(host):
        log.warning("keys and payloads go to %s in plain text; use https:// where others can listen", host)
    return _without_slash(parts)


def checked_key(key: str) -> str:
    """It goes into a header. What is wrong with it is said without showing it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise Invalid("the key holds spaces, line ends or other characters that no key has", code="malformed_key")
    return key


def _without_slash(parts: SplitResult) -> str:
    return parts._replace(path=parts.path.rstrip("/")).geturl()


def _invalid(why: str) -> Invalid:
    return Invalid(
        f"the address of a server looks like https://jobs.example.com; of this one, {why}", code="invalid_server_url"
    )
