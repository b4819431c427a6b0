"""How long an answer may take and how large it may be."""

from __future__ import annotations

import math

import msgspec

from holdfast.errors import InvalidField


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`msgspec.structs.replace(limits, total_seconds=5)` changes one of them."""

    connect_seconds: float = 5.0
    """To connect to one address, the TLS handshake included."""
    read_seconds: float = 15.0
    """Until the next bytes are received or sent."""
    total_seconds: float = 60.0
    """From the first look-up of the name to the last byte of the body, redirects included."""
    header_bytes: int = 65_536
    """Of the headers of one answer, informational answers (1xx) included."""
    body_bytes: int = 10 * 2**20
    """Of the body, as it is sent and after decompression."""
    redirects: int = 5
    """Followed for one request; with 0 a redirect is an answer like any other."""
    idle_seconds: float = 15.0
    """For which an unused connection is kept open; with 0 each request has a connection of its own."""
    idle_connections: int = 20
    """Kept open at the same time."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InvalidField(f"the limit {name} is a number from 0 up, got {value!r:.50}", field=name)
