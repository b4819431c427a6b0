"""Maps errors to HTTP statuses and to RFC 9457 problem responses, without internal details."""

from __future__ import annotations

from http import HTTPStatus
from math import ceil

import msgspec

from holdfast.errors import (
    AddressRefused,
    Conflict,
    Forbidden,
    HoldfastError,
    HookFailed,
    Invalid,
    InvalidField,
    KeyReused,
    Malformed,
    NotAcceptable,
    NotFound,
    OutboundError,
    OutboundTimeout,
    PaymentRequired,
    Refused,
    StorageError,
    StoreError,
    TooMany,
    Unauthorized,
    UnsupportedMedia,
    WorkerDisabled,
)
from holdfast.server.http.route import Reply
from holdfast.wire import camel

PROBLEM = b"application/problem+json"
RETRY_AFTER_SECONDS = 1

# Statuses that do not follow from the class.
_BY_CODE = {
    "unsupported_media_type": 415,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "head_timeout": 408,
    "head_too_large": 431,
    "too_many_connections": 503,
    "wrong_host": 421,
    "value_refused": 422,
    "internal_error": 500,
}
_TOO_LARGE = "_too_large"
# Fields of an error that are sent to clients.
_SHOWN = ("job_id", "reassigned", "limit", "bytes", "name", "field", "extension")


def status_of(error: HoldfastError) -> int:
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    match error:
        case Invalid() if error.code.endswith(_TOO_LARGE):
            return 413
        case UnsupportedMedia():
            return 415
        case NotAcceptable():
            return 406
        case Malformed():
            return 400
        case PaymentRequired():
            return 402
        case KeyReused() | Invalid() | Refused() | AddressRefused():
            return 422
        case Unauthorized():
            return 401
        case Forbidden() | WorkerDisabled():
            return 403
        case NotFound():
            return 404
        case Conflict():
            return 409
        case TooMany():
            return 429
        case StoreError() | StorageError() | HookFailed():
            return 503
        case OutboundTimeout():
            return 504
        case OutboundError():
            return 502
        case _:
            return 500


def problem(error: HoldfastError, request_id: str) -> Reply:
    status = status_of(error)
    body = {
        "type": f"/docs#{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": error.code,
        "requestId": request_id,
    }
    for name in _SHOWN:
        if name in error.fields:
            body[camel(name)] = error.fields[name]
    if isinstance(error, InvalidField) and "field" in body:
        body["field"] = camel(str(body["field"]))  # as the request spells it
    return Reply(status, msgspec.json.encode(body), _headers(error, status), PROBLEM)


def _headers(error: HoldfastError, status: int) -> tuple[tuple[bytes, bytes], ...]:
    if status == 401:
        return ((b"www-authenticate", b'Bearer realm="holdfast"'),)
    if isinstance(error, TooMany):
        return ((b"retry-after", str(max(1, ceil(error.retry_after))).encode()),)
    if status == 503:
        return ((b"retry-after", str(RETRY_AFTER_SECONDS).encode()),)
    return ()
