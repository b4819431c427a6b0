"""Maps error responses of a server (RFC 9457 problems) to Holdfast errors."""

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
    PaymentRequired,
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
    402: PaymentRequired,
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
_NOT_PASSED_ON = (408, 503)  # a proxy with this status did not forward the request
TOO_MANY, SERVER_FAILED = 429, 500
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def error_of(answer: httpx2.Response, url: str) -> HoldfastError:
    """The server's error. A response of a proxy is never taken for one, whatever its status."""
    wait = answer.headers.get("retry-after", "")  # dates are ignored: the clocks may differ
    after = float(wait) if wait.isdigit() else None
    said = _said(answer)
    if said is None:
        return _proxy_error(answer, url, after)
    status, code, message = answer.status_code, said.pop("code"), said.pop("detail")
    if status == TOO_MANY:
        return TooMany(message, retry_after=1.0 if after is None else after, code=code, **said)
    if after is not None:
        said["retry_after"] = after
    if code == InvalidField.code and isinstance(field := said.get("field"), str):
        said["field"] = _snake(field)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, StoreError)
    return kind(message, code=code, **said)


def _proxy_error(answer: httpx2.Response, url: str, after: float | None) -> HoldfastError:
    """It is unknown whether the server received the request, unless the status rules it out."""
    status = answer.status_code
    message = f"{url} answers {status} {answer.reason_phrase}"
    said: dict[str, Any] = {} if after is None else {"retry_after": after}
    if status == TOO_MANY:
        return TooMany(message, retry_after=1.0 if after is None else after)
    if status in _NOT_PASSED_ON:
        return StoreUnavailable(message, **said)
    if status >= SERVER_FAILED:
        return OutcomeUnknown(message, **said)
    return StoreError(
        f"{message}, which is not a response of a Holdfast server; check the URL, and proxies in between",
        code="unexpected_answer",
    )


def _said(answer: httpx2.Response) -> dict[str, Any] | None:
    """The fields of a problem in snake case, without those about the response itself. None if it is not a Holdfast
    problem, whose type names its code."""
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
    """The error of one report in a batch."""
    code = report.code or LeaseLost.code
    kind = _BY_CODE.get(code, Invalid)
    return kind(report.detail or code, code=code, job_id=report.job_id, reassigned=report.reassigned)


def lost(error: httpx2.HTTPError, url: str) -> StoreError:
    """A connection error: before the request was sent, or before the response arrived."""
    why = str(error) or type(error).__name__
    if isinstance(error, _UNSENT):
        return StoreUnavailable(f"cannot connect to {url}: {why}", code="server_unreachable")
    return OutcomeUnknown(f"connection to {url} lost before the response: {why}", code="answer_lost")


def unreadable(url: str) -> StoreError:
    return StoreError(f"{url} does not respond like a Holdfast server; check the URL", code="unexpected_answer")
