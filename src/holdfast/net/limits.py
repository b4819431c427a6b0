"""Limits on the time and size of an outbound request."""

from __future__ import annotations

import math

import msgspec

from holdfast.errors import InvalidField


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`msgspec.structs.replace(limits, total_seconds=5)` changes one of them."""

    connect_seconds: float = 5.0
    """To connect to one address, the TLS handshake included."""
    read_seconds: float = 15.0
    """Between two reads or writes."""
    total_seconds: float = 60.0
    """From the name lookup to the last byte of the body, including redirects."""
    header_bytes: int = 65_536
    """Of the headers of one response, including informational responses (1xx)."""
    body_bytes: int = 10 * 2**20
    """Of the body, both compressed and decompressed."""
    redirects: int = 5
    """Followed for one request; with 0 a redirect is returned as a response."""
    idle_seconds: float = 15.0
    """How long an idle connection is kept alive; with 0 each request opens a new connection."""
    idle_connections: int = 20
    """Idle connections kept alive."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InvalidField(f"the limit {name} must be a number of at least 0, got {value!r:.50}", field=name)
