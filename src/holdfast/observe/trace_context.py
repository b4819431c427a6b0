"""Parses the W3C Trace Context headers, `traceparent` and `tracestate`. They come from clients and are not trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping

STATE_CHARS_MAX, STATE_MEMBERS_MAX = 512, 32

_PARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")
_MEMBER = re.compile(
    rb"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


def carried(headers: Mapping[bytes, bytes]) -> dict[str, str] | None:
    """What is stored with a job of `traceparent` and `tracestate`. A malformed header is ignored."""
    header = headers.get(b"traceparent")
    if header is None:
        return None
    parent = _PARENT.fullmatch(header.strip())
    if parent is None or (parent[1] == b"00" and parent[3]):
        return None
    kept = {"traceparent": f"00-{parent[2].decode()}"}  # of a later version, the part that this version defines
    if state := _state(headers.get(b"tracestate", b"")):
        kept["tracestate"] = state
    return kept


def _state(header: bytes) -> str | None:
    members = [member for each in header.split(b",") if (member := each.strip(b" \t"))]
    if len(members) > STATE_MEMBERS_MAX or not all(_MEMBER.fullmatch(member) for member in members):
        return None
    state = b",".join(members).decode()
    return state if len(state) <= STATE_CHARS_MAX else None
