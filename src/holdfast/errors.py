"""The exceptions of Holdfast. Each has a stable `code` and a message that says what is wrong and what to do.

HoldfastError
├── Invalid            the request is invalid; nothing was written
│   ├── Malformed          it cannot be parsed
│   ├── InvalidField       a field has an invalid value
│   ├── UnknownName        an unknown lifecycle, state, verb or actor
│   ├── OtherDatabase      the given connection is to another database than that of the jobs
│   └── KeyReused          an idempotency key was used with another request
├── Unauthorized       no valid credentials
├── Forbidden          the credentials lack a scope
├── TooMany            rate limit exceeded; `retry_after` says how long to wait
├── NotFound           no such job or worker
│   └── ObjectNotFound     no such object in object storage
├── Conflict           the state of the job does not allow it
│   ├── ObjectChanged      an object was replaced while it was read
│   ├── LeaseLost          the caller does not hold the lease (any more)
│   ├── IllegalMove        the lifecycle does not allow the transition, or not for this actor
│   ├── WorkerDisabled     an operator disabled this worker
│   └── ExtensionMissing   the job needs an extension that this process does not have
├── HookFailed         a hook of an extension failed; the transition was rolled back and is retried
├── Refused            a guard rejected the request
│   └── PaymentRequired    the caller has too few credits for it
├── StorageError       an error of object storage
│   ├── StorageUnavailable timeout or server error; try again
│   └── StorageDenied      invalid credentials or missing permission
├── OutboundError      an outbound HTTP request failed
│   ├── AddressRefused     the URL, or an address of its host, is not allowed
│   ├── Unreachable        connection failed or lost before the response was complete
│   ├── OutboundTimeout    timeout
│   ├── AnswerTooLarge     the headers or the body of the response exceed the limit
│   ├── MalformedAnswer    the response is not HTTP, or its compression is broken
│   └── TooManyRedirects   more redirects than the limit
└── StoreError         an error of the database
    ├── StoreUnavailable   nothing was written; try again
    │   └── Locked             another open transaction holds a lock
    ├── OutcomeUnknown     the result of the commit is unknown: it may have happened
    ├── SchemaStale        the database needs `migrate`
    └── RowRefused         the database rejects the row; nothing was written, and a retry does not help

JobFailed is raised by `job.result()` for a job that did not succeed.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any


class HoldfastError(Exception):
    code = "error"

    def __init__(self, message: str, *, code: str | None = None, audit: Any = None, **fields: Any) -> None:
        """`audit`: an entry of `ext.audit_entry(...)`, written if a guard on `create` raises this error."""
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.fields, self.audit = fields, audit

    @property
    def full(self) -> str:
        """The message for logs and terminals."""
        return self.message


class Invalid(HoldfastError):
    code = "invalid"


class Malformed(Invalid):
    code = "malformed"


class UnsupportedMedia(Invalid):
    code = "unsupported_media_type"


class NotAcceptable(Invalid):
    code = "not_acceptable"


class InvalidField(Invalid):
    """`fields["field"]` names the field, as Python spells it."""

    code = "invalid_field"


class UnknownName(Invalid):
    code = "unknown_name"

    @classmethod
    def of(cls, kind: str, name: str, known: list[str], *, where: str = "") -> UnknownName:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}."
        place = f" in {where}" if where else ""
        return cls(f"unknown {kind} {name!r}{place}; {hint}", code=f"unknown_{kind}", name=name)


class OtherDatabase(Invalid):
    code = "invalid_connection"


class KeyReused(Invalid):
    code = "idempotency_key_reused"


class Unauthorized(HoldfastError):
    code = "unauthorized"


class Forbidden(HoldfastError):
    code = "forbidden"


class TooMany(HoldfastError):
    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after: float, code: str | None = None, **fields: Any) -> None:
        super().__init__(message, code=code, **fields)
        self.retry_after = retry_after


class NotFound(HoldfastError):
    code = "not_found"


class ObjectNotFound(NotFound):
    code = "object_not_found"


class Conflict(HoldfastError):
    code = "conflict"


class ObjectChanged(Conflict):
    code = "object_changed"


class LeaseLost(Conflict):
    code = "lease_lost"


class IllegalMove(Conflict):
    code = "illegal_move"


class WorkerDisabled(Conflict):
    code = "worker_disabled"


class ExtensionMissing(Conflict):
    code = "extension_missing"


class HookFailed(HoldfastError):
    code = "hook_failed"


class Refused(HoldfastError):
    code = "refused"


class PaymentRequired(Refused):
    code = "payment_required"


class OutboundError(HoldfastError):
    """`reason` is the message without `about`, which names the host. Neither holds a path, a query or a header."""

    code = "outbound_error"

    def __init__(self, reason: str, *, about: str = "", code: str | None = None, **fields: Any) -> None:
        super().__init__(f"{about}: {reason}" if about else reason, code=code, **fields)
        self.reason = reason


class AddressRefused(OutboundError):
    code = "address_refused"


class Unreachable(OutboundError):
    code = "host_unreachable"


class OutboundTimeout(OutboundError):
    code = "outbound_timeout"


class AnswerTooLarge(OutboundError):
    code = "answer_too_large"


class MalformedAnswer(OutboundError):
    code = "malformed_answer"


class TooManyRedirects(OutboundError):
    code = "too_many_redirects"


class _ExternalError(HoldfastError):
    """`message` is safe for clients. `full` may contain addresses, users and names."""

    def __init__(self, message: str, *, code: str | None = None, full: str | None = None, **fields: Any) -> None:
        super().__init__(message, code=code, **fields)
        self._full = full

    @property
    def full(self) -> str:
        return self._full or self.message

    def __str__(self) -> str:
        return self.full


class StorageError(_ExternalError):
    code = "storage_error"


class StorageUnavailable(StorageError):
    code = "storage_unavailable"


class StorageThrottled(StorageUnavailable):
    code = "storage_throttled"


class StorageDenied(StorageError):
    code = "storage_denied"


class StoreError(_ExternalError):
    code = "store_error"


class StoreUnavailable(StoreError):
    code = "store_unavailable"


class Locked(StoreUnavailable):
    code = "locked"


class OutcomeUnknown(StoreError):
    code = "outcome_unknown"


class SchemaStale(StoreError):
    code = "schema_stale"


class RowRefused(StoreError):
    code = "constraint_violated"


class JobFailed(HoldfastError):
    """Raised by `result` for a job that did not succeed; `code` and `message` are those of the job."""

    def __init__(self, job_id: str, job_type: str, status: str, *, code: str, message: str) -> None:
        words = dict.fromkeys(word for word in (code, message) if word)
        super().__init__(f"job {job_id} ({job_type}) is {status}: {' '.join(words)}", code=code)
        self.message = message
        self.job_id, self.status = job_id, status
