"""The error body of every route: RFC 9457 problem details."""

from __future__ import annotations

from holdfast.wire.base import ResponseBody


class Problem(ResponseBody):
    """RFC 9457 problem details. `code` is stable; `detail` is for people. Some codes add fields, such as `field`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
