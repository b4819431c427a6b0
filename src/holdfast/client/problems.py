"""What a server answers that is no success becomes the error that it was there."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec

from holdfast import wire
from holdfast.errors import (
    Conflict,
    Forbidden,
    HoldfastError,
    IllegalMove,
    Invalid,
    KeyReused,
    LeaseLost,
    Malformed,
    NotFound,
    OutcomeUnknown,
    SchemaStale,
    StoreError,
    StoreUnavailable,
    TooMany,
    Unauthorized,
    WorkerDisabled,
)

_BY_CODE: dict[str | None, type[HoldfastError]] = {
    kind.code: kind for kind in (KeyReused, LeaseLost, IllegalMove, WorkerDisabled, OutcomeUnknown, SchemaStale)
}
_BY_CODE["request_timeout"] = OutcomeUnknown
_BY_STATUS: dict[int, type[HoldfastError]] = {
    400: Malformed,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Malformed,
    408: StoreUnavailable,
    409: Conflict,
    413: Invalid,
    415: Malformed,
    421: Malformed,
    422: Invalid,
    502: OutcomeUnknown,
    503: StoreUnavailable,
    504: OutcomeUnknown,
}
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def error_of(answer: httpx2.Response, place: str) -> HoldfastError:
    """The server's own words; of whoever stands before it, only the status is worth repeating."""
    status, said = answer.status_code, _said(answer)
    code, message = said.pop("code", None), said.pop("detail", f"{place} answers {status} {answer.reason_phrase}")
    wait = answer.headers.get("retry-after", "")  # a date is not worth the trouble of two clocks
    if status == 429:
        return TooMany(message, retry_after=float(wait) if wait.isdigit() else 1.0, code=code, **said)
    if wait.isdigit():
        said["retry_after"] = float(wait)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, StoreError)
    return kind(message, code=code or ("unexpected_answer" if kind is StoreError else None), **said)


def _said(answer: httpx2.Response) -> dict[str, Any]:
    """A problem's fields in our spelling, without those that are about the answer itself."""
    try:
        fields = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    if not isinstance(fields.get("code"), str) or not isinstance(fields.get("detail"), str):
        return {}
    about = ("type", "title", "status", "message", "retryAfter")
    return {_snake(name): value for name, value in fields.items() if name not in about}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def refused(report: wire.Report) -> HoldfastError:
    """The answer to one of many words."""
    code = report.code or LeaseLost.code
    kind = _BY_CODE.get(code, Invalid)
    return kind(report.detail or code, code=code, job_id=report.job_id, reassigned=report.reassigned)


def lost(error: httpx2.HTTPError, place: str) -> StoreError:
    """The wire failed: before the request was out, or before its answer was back."""
    why = str(error) or type(error).__name__
    if isinstance(error, _UNSENT):
        return StoreUnavailable(f"cannot reach {place}: {why}", code="server_unreachable")
    return OutcomeUnknown(f"the answer of {place} was lost: {why}", code="answer_lost")


def unreadable(place: str) -> StoreError:
    return StoreError(
        f"{place} does not answer as a Holdfast server does; is the address right?", code="unexpected_answer"
    )
