"""What a worker reports about the jobs it holds, and the answers: the same structs in a worker, over HTTP and in the
engine."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.ids import is_uuid
from holdfast.lifecycle import State
from holdfast.model.history import PartReport
from holdfast.model.names import Name
from holdfast.model.numbers import Seconds

# `gc=False` below: JSON contains no reference to what contains it, so the garbage collector need not look there.

CONTEXT_BYTES_MAX = 16 * 1024  # of JSON that explains an error


WAITING_FOR_CHILDREN = "waiting_for_children"

# Over HTTP.
_WIRE_NAMES = {
    "id": "jobId",
    "token": "leaseToken",
    "code": "errorCode",
    "step": "currentStep",
    "percent": "progressPercent",
    "children": "waitForChildren",
    "target": "targetId",
    "delay_seconds": "delaySeconds",
    "eta_seconds": "etaSeconds",
    "retry_after_seconds": "retryAfterSeconds",
}


class HeldLease(msgspec.Struct, frozen=True, gc=False, rename=_WIRE_NAMES, forbid_unknown_fields=True):
    """A job and the token it is held by."""  # the docstring is in the OpenAPI document

    id: str
    token: str

    @property
    def plausible(self) -> bool:
        """A token that no claim can have issued is not worth asking the database about."""
        return is_uuid(self.id) and is_uuid(self.token)


class Complete(HeldLease, frozen=True):
    """The execution succeeded."""

    result: Any = None


# In the context of an error: the class of an exception that no code raised on purpose. Its text may hold addresses,
# paths and names, so it is for operators, and clients read a sentence of ours instead.
RAISED = "raised"


class Fail(HeldLease, frozen=True, kw_only=True):
    """The execution ended with an error, whose code decides what happens next."""

    code: Name
    message: str = ""
    context: dict[str, Any] | None = None
    retry_after_seconds: Seconds | None = None
    permanent: bool = False


class Release(HeldLease, frozen=True, omit_defaults=True):
    """The job is returned to the queue unfinished, to be claimed at once or after a delay."""

    delay_seconds: Seconds = 0
    snoozed: bool | None = None  # the handler asked for the delay; None: it did if there is one
    children: bool = False  # it waits until no job is unfinished whose parent it is

    @property
    def reason(self) -> str:
        if self.children:
            return WAITING_FOR_CHILDREN
        asked_for = self.delay_seconds > 0 if self.snoozed is None else self.snoozed
        return "snoozed" if asked_for else "released"


class Rejection(HeldLease, frozen=True, kw_only=True):
    """The job must not be done: a policy decision, not a failure."""  # of a queued job: with an empty token

    code: Name
    message: str = ""
    context: dict[str, Any] | None = None


class Progress(HeldLease, frozen=True, kw_only=True):
    """Fields that are left out stay as they are; counters are merged by name."""

    step: str | None = None
    percent: float | None = None
    counters: dict[str, Any] | None = None
    eta_seconds: float | None = None
    parts: list[PartReport] = []
    checkpoint: Any = None


class Advanced(msgspec.Struct, frozen=True):
    """The answer to progress."""

    id: str
    expires_at: datetime
    cancel_requested: bool


class Withdrawal(HeldLease, frozen=True, kw_only=True):
    """The job that is held wants another one to end."""

    target: str
    reason: Name = "canceled"
    message: str = ""


class Withdrawn(msgspec.Struct, frozen=True):
    """What became of that other job. `asked`: it is running, and its worker was told to stop it."""

    id: str
    state: State
    asked: bool = False


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The answer to complete, fail, release and reject: where the job went."""

    id: str
    state: State


class Fleet(msgspec.Struct, frozen=True):
    """The processes that live: how many, how many of them stand before this one, and whether any may hold a job."""

    live: int = 1
    place: int = 0
    busy: bool = True


class Beat(msgspec.Struct, frozen=True):
    """The answer to heartbeat: leases gone, cancels asked for, and whether an operator switched the worker off."""

    lost: list[str]
    cancel: list[str]
    enabled: bool
    expires_at: dict[str, datetime]
    fleet: Fleet = Fleet()
