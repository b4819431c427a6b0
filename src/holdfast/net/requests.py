"""Outbound requests: validation, and the next request after a redirect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urldefrag, urljoin

import httpx2
import msgspec

from holdfast.errors import AddressRefused, Invalid
from holdfast.net.egress_rules import EgressRules, Target
from holdfast.redaction import is_secret_name

IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}

_METHOD = re.compile(r"[A-Z]{1,20}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_SET_BY_CLIENT = {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect"}
_BODY_HEADERS = ("content-", "digest", "repr-digest")  # headers that are dropped with the body
_WITH_BODY = {"POST", "PUT", "PATCH"}
_URL_CHARACTERS = "".join(map(chr, range(0x21, 0x7F)))
_MOVED, _FOUND, _SEE_OTHER, _TEMPORARY, _PERMANENT = 301, 302, 303, 307, 308
_REDIRECTS = {_MOVED, _FOUND, _SEE_OTHER, _TEMPORARY, _PERMANENT}


class OutboundRequest(NamedTuple):
    """`headers` are in lower case, without those that the client sets itself."""

    method: str
    target: Target
    headers: dict[str, str]
    body: bytes | None

    def lines(self) -> list[tuple[str, str]]:
        """All headers of the request."""
        sized = self.body is not None or self.method in _WITH_BODY
        length = {"content-length": str(len(self.body or b""))} if sized else {}
        return list({"host": self.target.authority, **self.headers, **length}.items())


def outgoing(
    method: str, target: Target, headers: Mapping[str, str], body: bytes | str | None, json: Any
) -> OutboundRequest:
    """Build a request; `headers` are checked already."""
    if not isinstance(method, str) or not _METHOD.fullmatch(method) or method == "CONNECT":
        raise _invalid("a method is a word in capitals, such as GET; CONNECT is not supported")
    if json is not msgspec.UNSET:
        if body is not None:
            raise _invalid("use `body` or `json`, not both")
        body = msgspec.json.encode(json)
        headers = {"content-type": "application/json", **headers}
    return OutboundRequest(method, target, dict(headers), body.encode() if isinstance(body, str) else body)


def checked(headers: Mapping[str, str]) -> dict[str, str]:
    """Validate headers, and convert names to lower case; errors do not contain values."""
    return dict(_checked(name, value) for name, value in headers.items())


def _checked(name: str, value: str) -> tuple[str, str]:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise _invalid(f"{name!r:.80} is not a header name")
    if name.lower() in _SET_BY_CLIENT:
        raise _invalid(f"the header {name} is set by the client itself")
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise _invalid(f"the header {name} must be one line of printable ASCII characters")
    return name.lower(), value


def _invalid(text: str) -> Invalid:
    return Invalid(text, code="invalid_outbound_request")


def redirected(
    sent: OutboundRequest, status: int, headers: httpx2.Headers, rules: EgressRules
) -> OutboundRequest | None:
    """The next request, or None if the response is not a redirect (RFC 9110, section 15.4)."""
    location = headers.get("location")
    if status not in _REDIRECTS or location is None:
        return None
    target = _followed(sent.target, location, rules)
    method, body, kept = sent.method, sent.body, sent.headers
    if (status == _SEE_OTHER and method not in ("GET", "HEAD")) or (status in (_MOVED, _FOUND) and method == "POST"):
        method, body = "GET", None
        kept = {name: value for name, value in kept.items() if not name.startswith(_BODY_HEADERS)}
    if target.origin != sent.target.origin:
        kept = {name: value for name, value in kept.items() if not is_secret_name(name)}
    return OutboundRequest(method, target, kept, body)


def _followed(current: Target, location: str, rules: EgressRules) -> Target:
    about = f"{current.authority}: the redirect cannot be followed"
    try:
        return rules.check(without_fragment(urljoin(current.url, quote(location, safe=_URL_CHARACTERS))))
    except ValueError:
        raise AddressRefused("its URL is malformed", about=about) from None
    except AddressRefused as refused:
        raise AddressRefused(refused.reason, about=about) from None


def without_fragment(url: str) -> str:
    """Fragments are never sent."""
    return urldefrag(url).url if isinstance(url, str) and "#" in url else url
