"""Errors, as RFC 9457 has them."""

from __future__ import annotations

from holdfast.wire.base import ResponseBody


class Problem(ResponseBody):
    """RFC 9457. `code` is stable; `detail` is for people; some problems say more in further fields."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
