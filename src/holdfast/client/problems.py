"""What a server answers that is no success becomes the error that it was there."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec

from holdfast import wire
from holdfast.errors import (
    Conflict,
    ExtensionMissing,
    Forbidden,
    HoldfastError,
    HookFailed,
    IllegalMove,
    Invalid,
    InvalidField,
    KeyReused,
    LeaseLost,
    Malformed,
    NotFound,
    OutcomeUnknown,
    Refused,
    SchemaStale,
    StoreError,
    StoreUnavailable,
    TooMany,
    Unauthorized,
    WorkerDisabled,
)

_BY_CODE: dict[str | None, type[HoldfastError]] = {
    kind.code: kind
    for kind in (
        *(InvalidField, KeyReused, LeaseLost, IllegalMove, WorkerDisabled, ExtensionMissing, HookFailed, Refused),
        *(OutcomeUnknown, SchemaStale),
    )
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
    503: StoreUnavailable,
}
_NOT_PASSED_ON = (408, 503)  # by a proxy that says so
TOO_MANY, SERVER_FAILED = 429, 500
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def error_of(answer: httpx2.Response, place: str) -> HoldfastError:
    """The server's own words. What a proxy before it says is never taken for them, whatever its status."""
    wait = answer.headers.get("retry-after", "")  # a date is not worth the trouble of two clocks
    after = float(wait) if wait.isdigit() else None
    said = _said(answer)
    if said is None:
        return _not_ours(answer, place, after)
    status, code, message = answer.status_code, said.pop("code"), said.pop("detail")
    if status == TOO_MANY:
        return TooMany(message, retry_after=1.0 if after is None else after, code=code, **said)
    if after is not None:
        said["retry_after"] = after
    if code == InvalidField.code and isinstance(field := said.get("field"), str):
        said["field"] = _snake(field)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, StoreError)
    return kind(message, code=code, **said)


def _not_ours(answer: httpx2.Response, place: str, after: float | None) -> HoldfastError:
    """Whether the server ever saw the request is not known, unless the status says that it cannot have."""
    status = answer.status_code
    message = f"{place} answers {status} {answer.reason_phrase}"
    said: dict[str, Any] = {} if after is None else {"retry_after": after}
    if status == TOO_MANY:
        return TooMany(message, retry_after=1.0 if after is None else after)
    if status in _NOT_PASSED_ON:
        return StoreUnavailable(message, **said)
    if status >= SERVER_FAILED:
        return OutcomeUnknown(message, **said)
    return StoreError(
        f"{message}, and not as a Holdfast server does; is the address right, is there a proxy in between?",
        code="unexpected_answer",
    )


def _said(answer: httpx2.Response) -> dict[str, Any] | None:
    """A problem's fields in our spelling, without those that are about the answer itself. None if it is not ours: our
    problems have a type that names their code."""
    try:
        fields = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    code, detail = fields.get("code"), fields.get("detail")
    if not isinstance(code, str) or not isinstance(detail, str) or fields.get("type") != f"/docs#{code}":
        return None
    about = ("type", "title", "status", "message", "retryAfter")
    return {_snake(name): value for name, value in fields.items() if name not in about}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def refused(report: wire.ReportResult) -> HoldfastError:
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
