"""Cursors of lists: a place that only we can have named, good for one tenant and one filter."""

from __future__ import annotations

import base64
import binascii
import hmac

import msgspec

from holdfast.engine import Engine, Filter
from holdfast.errors import Invalid

MAC_BYTES = 16


class Cursors:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._key: bytes | None = None

    async def given_out(self, place: str, wanted: Filter) -> str:
        signed = await self._signature(place, wanted) + place.encode()
        return base64.urlsafe_b64encode(signed).decode().rstrip("=")

    async def place(self, cursor: str, wanted: Filter) -> str:
        """The place that a cursor names, if it was given out for this tenant and this filter."""
        try:
            signed = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            place = signed[MAC_BYTES:].decode("ascii")
        except (ValueError, binascii.Error):
            raise _foreign() from None
        if not hmac.compare_digest(signed[:MAC_BYTES], await self._signature(place, wanted)):
            raise _foreign()
        return place

    async def _signature(self, place: str, wanted: Filter) -> bytes:
        if self._key is None:
            self._key = await self._engine.keys.server_secret("cursors")
        return hmac.digest(self._key, msgspec.json.encode([place, wanted]), "sha256")[:MAC_BYTES]


def _foreign() -> Invalid:
    return Invalid(
        "this cursor was not given out for this list; begin again without one, or keep the filter as it was",
        code="invalid_cursor",
    )
