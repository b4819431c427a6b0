"""How an execution ends: what a handler may raise or return, and what becomes of it. Plain data: it crosses pipes."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, Invalid, OutboundError, OutcomeUnknown, StoreUnavailable
from holdfast.model.json import encode, readable
from holdfast.model.reports import CONTEXT_BYTES_MAX, RAISED

TRACEBACK_CHARS_MAX = 6000
SHORT_CHARS_MAX, SHORT_VALUES_MAX = 200, 15  # of a context that is too large
CALLER = str(Path(__file__).with_name("handler.py"))  # calls handlers
OUTAGE_SECONDS = 5.0  # until a handler that met an outage of the database is tried again
GIVEN_BACK_MAX = 20  # times that a job was given back, after which such an outage is a failure like any other


class _Verdict(Exception):
    """What a handler says about its job. `context` is kept with the error, for operators."""

    def __init__(self, code: str, message: str = "", *, context: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code, self.message, self.context = code, message, context


class Permanent(_Verdict):
    """Raised or returned by a handler: trying again cannot help. `context` is kept with the error, for operators."""


class Retry(_Verdict):
    """Raised or returned by a handler: try again; `after` says in how many seconds, else the policy's backoff does."""

    def __init__(
        self, code: str, message: str = "", *, after: float | None = None, context: dict[str, Any] | None = None
    ) -> None:
        super().__init__(code, message, context=context)
        self.after = after


class Reject(_Verdict):
    """Raised or returned by a handler: not a failure but a verdict, this job must not be done."""


class Snooze(Exception):
    """Raised or returned by a handler: not now. The attempt is given back."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds} s")
        self.seconds = seconds


class WaitForChildren(Snooze):
    """Raised or returned by a handler: not before every job has ended whose parent this one is."""

    def __init__(self) -> None:
        super().__init__(0)


SAID = (Permanent, Retry, Reject, Snooze)  # by raising it, or by returning it


class Completed(msgspec.Struct, frozen=True, gc=False, tag="completed"):
    result: Any = None


class Recorded(msgspec.Struct, frozen=True, gc=False, tag="recorded"):
    """The handler completed the job in a transaction of its own, which is committed: there is nothing to report."""

    result: Any = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    code: str
    message: str = ""
    context: dict[str, Any] | None = None
    permanent: bool = False
    retry_after_seconds: float | None = None

    @property
    def deliberate(self) -> bool:
        """Its handler said what is to become of the job."""
        return self.permanent or self.retry_after_seconds is not None


class Released(msgspec.Struct, frozen=True, tag="released"):
    """Given back: snoozed by its handler, or its worker stops."""

    delay_seconds: float = 0
    snoozed: bool = False
    children: bool = False


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    code: str
    message: str = ""
    context: dict[str, Any] | None = None


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned"):
    """Nothing to report: the lease is lost."""


Outcome = Completed | Recorded | Failed | Released | Rejected | Abandoned


def how(outcome: Outcome) -> tuple[str, str | None]:
    """In a word, and the code of what went wrong."""
    match outcome:
        case Failed(code=code):
            return "failed", code
        case Abandoned():
            return "abandoned", "lease_lost"
        case Rejected():
            return "rejected", None
        case Released():
            return "released", None
    return "completed", None


def of_error(error: BaseException, codes: Mapping[type[BaseException], str], *, given_back: int = 0) -> Outcome:
    """What an exception that left a handler means. `given_back`: how often the job was, before this execution."""
    match error:
        case WaitForChildren():
            return Released(snoozed=True, children=True)
        case Snooze():
            return Released(error.seconds, snoozed=True)
        case Reject():
            return Rejected(error.code, error.message, _storable(error.context))
        case Permanent():
            return Failed(error.code, error.message, _storable(error.context), permanent=True)
        case Retry():
            return Failed(error.code, error.message, _storable(error.context), retry_after_seconds=error.after)
        case StoreUnavailable() | OutcomeUnknown() if given_back < GIVEN_BACK_MAX:  # as of `enqueue`, in the handler
            return Released(OUTAGE_SECONDS)
        case Invalid():
            return Failed(error.code, error.message, {"traceback": _told(error)}, permanent=True)
        case HoldfastError() if not isinstance(error, OutboundError):  # whose text names a host
            return Failed(code_of(error, codes), readable(error.message), {"traceback": _told(error)})
        case _:
            context = {RAISED: type(error).__name__, "traceback": _told(error)}
            return Failed(code_of(error, codes), readable(str(error)), context)


def _storable(context: Any) -> dict[str, Any] | None:
    """As JSON that fits: a context that cannot be stored must not hide the error that it explains."""
    if context is None:
        return None
    if not isinstance(context, dict):
        context = {"context": context}
    fits = {_short(name): _value(value) for name, value in context.items()}
    try:
        encode(fits, "error", max_bytes=CONTEXT_BYTES_MAX)
    except Invalid:
        return {name: _short(value) for name, value in list(fits.items())[:SHORT_VALUES_MAX]}
    return fits


def _value(value: Any) -> Any:
    try:
        encode(value, "error", max_bytes=CONTEXT_BYTES_MAX)
    except Invalid:
        return _short(value)
    return value


def _short(value: Any) -> str:
    return readable(str(value))[:SHORT_CHARS_MAX]


def _within_handler(trace: TracebackType | None) -> TracebackType | None:
    """What follows the worker's last frame. Where nothing does, the worker itself raised it: then all of it."""
    found, each = trace, trace
    while each is not None:
        if each.tb_frame.f_code.co_filename == CALLER and each.tb_next is not None:
            found = each.tb_next
        each = each.tb_next
    return found


def code_of(error: BaseException, codes: Mapping[type[BaseException], str]) -> str:
    """The code an app gave this class of error; else the error's own, if it is one of ours; else its class's name."""
    for kind in type(error).__mro__:
        if kind in codes:
            return codes[kind]
    return error.code if isinstance(error, HoldfastError) else type(error).__name__


def _told(error: BaseException) -> str:
    """From the handler down to what it raised: how the worker called it says nothing."""
    text = readable("".join(traceback.format_exception(type(error), error, _within_handler(error.__traceback__))))
    return text if len(text) <= TRACEBACK_CHARS_MAX else "…" + text[-TRACEBACK_CHARS_MAX:]
