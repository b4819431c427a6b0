"""Signed pagination cursors, valid for one tenant and one filter."""

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

    async def encode(self, position: str, filter_: Filter) -> str:
        signed = await self._signature(position, filter_) + position.encode()
        return base64.urlsafe_b64encode(signed).decode().rstrip("=")

    async def decode(self, cursor: str, filter_: Filter) -> str:
        """The position in a cursor, if the cursor was issued for this tenant and filter."""
        try:
            signed = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            position = signed[MAC_BYTES:].decode("ascii")
        except (ValueError, binascii.Error):
            raise _invalid_cursor() from None
        if not hmac.compare_digest(signed[:MAC_BYTES], await self._signature(position, filter_)):
            raise _invalid_cursor()
        return position

    async def _signature(self, position: str, filter_: Filter) -> bytes:
        if self._key is None:
            self._key = await self._engine.keys.server_secret("cursors")
        return hmac.digest(self._key, msgspec.json.encode([position, filter_]), "sha256")[:MAC_BYTES]


def _invalid_cursor() -> Invalid:
    return Invalid(
        "this cursor is not valid for this list; start without a cursor, or keep the filter unchanged",
        code="invalid_cursor",
    )
