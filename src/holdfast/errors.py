"""Every error Holdfast raises on purpose. Each has a stable `code`, names the thing, and says what to do.

HoldfastError
├── Invalid            the request itself is wrong; nothing was written
│   ├── Malformed          it cannot even be read
│   ├── InvalidField       one field has a value that it cannot have
│   ├── UnknownName        a lifecycle, state, verb or actor nobody declared
│   ├── OtherDatabase      the connection given leads to another database than the jobs'
│   └── KeyReused          an idempotency key came back with another request
├── Unauthorized       it is not known who asks
├── Forbidden          it is known, and they may not
├── TooMany            slower, please: `retry_after` says how long to wait
├── NotFound           no such job or worker
│   └── ObjectNotFound     no such object in object storage
├── Conflict           the request is fine, the job is not in a state for it
│   ├── ObjectChanged      an object was replaced while it was read
│   ├── LeaseLost          the caller does not hold the job (any more)
│   ├── IllegalMove        the lifecycle has no such move, or not for this actor
│   ├── WorkerDisabled     an operator switched this worker off
│   └── ExtensionMissing   the job needs hooks of an extension that this process does not have
├── HookFailed         an extension's hook failed; the move was undone and is tried again
├── Refused            a guard said no
├── StorageError       object storage could not do it
│   ├── StorageUnavailable no answer in time, or a failure of its own; try again
│   └── StorageDenied      it does not take these credentials, or does not allow this
├── OutboundError      an outbound HTTP request got no usable answer
│   ├── AddressRefused     the URL, or an address of its host, may not be requested
│   ├── Unreachable        no connection, or it was lost before the answer was complete
│   ├── OutboundTimeout    a time limit passed
│   ├── AnswerTooLarge     the headers or the body of the answer are over the limit
│   ├── MalformedAnswer    what came back is not HTTP, or its compression is broken
│   └── TooManyRedirects   more redirects than the limit
└── StoreError         the database could not do it
    ├── StoreUnavailable   nothing was written; try again
    │   └── Locked             another transaction that has not ended holds what is needed
    ├── OutcomeUnknown     the commit's answer was lost; it may or may not have happened
    ├── SchemaStale        the database needs `migrate`
    └── RowRefused         it cannot store this row; nothing was written, and sending it again will not help

JobFailed stands beside them: nothing failed but the job.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any


class HoldfastError(Exception):
    code = "error"

    def __init__(self, message: str, *, code: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.fields = fields

    @property
    def full(self) -> str:
        """What the log and the terminal show."""
        return self.message


class Invalid(HoldfastError):
    code = "invalid"


class Malformed(Invalid):
    code = "malformed"


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


class _Outside(HoldfastError):
    """`message` says what kind of failure it is and may be sent to any client. `full` may quote what failed, and with
    it addresses, users and names."""

    def __init__(self, message: str, *, code: str | None = None, full: str | None = None, **fields: Any) -> None:
        super().__init__(message, code=code, **fields)
        self._full = full

    @property
    def full(self) -> str:
        return self._full or self.message

    def __str__(self) -> str:
        return self.full


class StorageError(_Outside):
    code = "storage_error"


class StorageUnavailable(StorageError):
    code = "storage_unavailable"


class StorageDenied(StorageError):
    code = "storage_denied"


class StoreError(_Outside):
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
    """Raised by `result` for a job that ended otherwise; `code` and `message` are the job's own."""

    def __init__(self, job_id: str, job_type: str, status: str, *, code: str, message: str) -> None:
        words = dict.fromkeys(word for word in (code, message) if word)
        super().__init__(f"job {job_id} ({job_type}) is {status}: {' '.join(words)}", code=code)
        self.message = message
        self.job_id, self.status = job_id, status
