"""What a worker says about the jobs it holds, and what it is told: plain data, the same in a process and over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.ids import is_uuid
from holdfast.lifecycle import State
from holdfast.model.history import Part

CONTEXT_BYTES_MAX = 16 * 1024  # of JSON that explains an error


WAITING_FOR_CHILDREN = "waiting_for_children"


class Held(msgspec.Struct, frozen=True):
    """A job and the token it is held by."""

    id: str
    token: str

    @property
    def plausible(self) -> bool:
        return is_plausible(self.id, self.token)


def is_plausible(job_id: str, token: str) -> bool:
    """A token that no claim can have issued is not worth asking the database about."""
    return is_uuid(job_id) and is_uuid(token)


class Done(msgspec.Struct, frozen=True):
    """complete: the execution succeeded."""

    id: str
    token: str
    result: Any = None

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


# In the context of an error: the class of an exception that no code raised on purpose. Its text may hold addresses,
# paths and names, so it is for operators, and clients read a sentence of ours instead.
RAISED = "raised"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """fail: the execution ended with an error, whose code decides what happens next."""

    id: str
    token: str
    code: str
    message: str = ""
    context: dict[str, Any] | None = None
    retry_after_seconds: float | None = None
    permanent: bool = False

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class Freed(msgspec.Struct, frozen=True):
    """release: handed back unfinished, to be claimed at once or after a delay.

    `snoozed`: the handler asked for the delay. None: it did if there is one.
    """

    id: str
    token: str
    delay_seconds: float = 0
    snoozed: bool | None = None
    children: bool = False  # it waits until no job is unfinished whose parent it is

    @property
    def reason(self) -> str:
        if self.children:
            return WAITING_FOR_CHILDREN
        asked_for = self.delay_seconds > 0 if self.snoozed is None else self.snoozed
        return "snoozed" if asked_for else "released"

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """reject: policy says no. Without a token it is about a job that nobody has started."""

    id: str
    code: str
    message: str = ""
    context: dict[str, Any] | None = None
    token: str = ""

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """progress: what is None stays as it was; counters are merged by name."""

    id: str
    token: str
    step: str | None = None
    percent: float | None = None
    counters: dict[str, Any] | None = None
    eta_seconds: float | None = None
    checkpoint: Any = None
    parts: list[Part] = []

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class Advanced(msgspec.Struct, frozen=True):
    """The answer to progress."""

    id: str
    expires_at: datetime
    cancel_requested: bool


class Withdrawal(msgspec.Struct, frozen=True, kw_only=True):
    """withdraw: the job that is held wants the waiting work of another one to end."""

    id: str
    token: str
    target: str
    reason: str = "canceled"
    message: str = ""

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class Withdrawn(msgspec.Struct, frozen=True):
    """What became of that other job. `asked`: its worker was told to stop it. Running and not asked: its lifecycle
    cannot be told to, and what waits afterwards can still be withdrawn."""

    id: str
    state: State
    asked: bool = False


class Settled(msgspec.Struct, frozen=True):
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
