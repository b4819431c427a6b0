"""The policy of a job: leases, timeouts, retries, error treatment, idempotency. Randomness is an argument."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.backoff import delay
from holdfast.errors import Invalid


class Treatment(StrEnum):
    TRANSIENT = "transient"  # retry with backoff
    THROTTLED = "throttled"  # retry, slower, with a higher cap
    PERMANENT = "permanent"  # no retry


class Idempotency(StrEnum):
    FOREVER = "forever"  # a key identifies one job, even after it was pruned
    WINDOW = "window"  # ... for `idempotency_window_seconds` after creation
    UNTIL_FAILED = "until_failed"  # ... until that job failed or was canceled; a rejection keeps the key
    WINDOW_UNTIL_FAILED = "window_until_failed"  # ... until either of the two


class Reaping(StrEnum):
    EXPIRED = "expired"  # when the lease has expired
    EXPIRED_AND_OFFLINE = "expired_and_offline"  # ... and the worker is offline


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The effective policy: request over job type over explicit settings over lifecycle."""

    lease_seconds: float = 30
    heartbeat_seconds: float = 10
    max_attempts: int = 5  # including the first
    max_lost: int = 3  # lost leases until the job is dead as poison

    backoff_base_seconds: float = 2
    backoff_factor: float = 2
    backoff_cap_seconds: float = 600
    backoff_jitter: float = 1  # 1: anywhere between now and the full delay; 0: always the full delay
    throttle_cap_seconds: float = 3600

    errors: dict[str, Treatment] = {}  # error code -> treatment
    unknown_errors: Treatment = Treatment.TRANSIENT

    late_writes: bool = True  # accept reports on an expired lease that was not reaped
    reaping: Reaping = Reaping.EXPIRED
    offline_seconds: float = 90
    timeout_seconds: float | None = None  # of one attempt; the worker enforces it, and it counts as a failure
    no_progress_seconds: float | None = None
    max_runtime_seconds: float | None = None
    cancel_grace_seconds: float = 30
    defer_seconds: float = 60  # wait for a worker with the preferred capabilities

    keep_completed_parts: bool = True  # a retry does not run completed parts again
    discard_partial_parts: bool = False  # a retry restarts parts that were in progress

    idempotency: Idempotency = Idempotency.FOREVER
    idempotency_window_seconds: float = 86_400

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < 10**9:
                raise _invalid(f"policy {name} must be positive, got {value}", name=name)
        for name in ("backoff_base_seconds", "defer_seconds", "cancel_grace_seconds"):
            if not 0 <= (value := getattr(self, name)) < 10**9:
                raise _invalid(f"policy {name} must not be negative, got {value}", name=name)
        if self.backoff_factor > 1000:
            raise _invalid(f"policy backoff_factor must be at most 1000, got {self.backoff_factor}")
        if not 0 <= self.backoff_jitter <= 1:
            raise _invalid(f"policy backoff_jitter must be 0 to 1, got {self.backoff_jitter}")
        if not 1 <= self.max_attempts <= 1000:
            raise _invalid(f"policy max_attempts must be 1 to 1000, got {self.max_attempts}")
        if self.heartbeat_seconds >= self.lease_seconds:
            raise _invalid(
                f"policy heartbeat_seconds ({self.heartbeat_seconds}) must be shorter than "
                f"lease_seconds ({self.lease_seconds}), or every lease expires"
            )

    def treat(self, error_code: str) -> Treatment:
        return self.errors.get(error_code, self.unknown_errors)

    def backoff(self, failures: int, treatment: Treatment, jitter: float) -> float:
        """base * factor ** (failures - 1), capped, with jitter against retry storms."""
        cap = self.throttle_cap_seconds if treatment is Treatment.THROTTLED else self.backoff_cap_seconds
        return delay(
            *(failures, self.backoff_base_seconds, cap, jitter), factor=self.backoff_factor, jitter=self.backoff_jitter
        )

    def over(self, changes: dict[str, Any]) -> Policy:
        """This policy with some fields replaced; error codes are merged."""
        _refuse_unknown(changes)
        if isinstance(errors := changes.get("errors"), dict):
            changes = {**changes, "errors": {**self.errors, **errors}}
        try:
            return msgspec.convert({**msgspec.to_builtins(self), **changes}, Policy)
        except msgspec.ValidationError as error:
            raise _invalid(f"policy: {error}") from None

    def over_stored(self, stored: Any) -> tuple[Policy, list[str]]:
        """This policy with stored fields, perhaps of a newer version, and the names of the ignored ones.

        Fields and values that this version does not know are ignored, so that both versions can share a database.
        """
        known, ignored = readable(stored)
        try:
            return self.over(known), ignored
        except Invalid:  # each is valid, but not their combination
            return self, sorted(stored)


def readable(stored: Any) -> tuple[dict[str, Any], list[str]]:
    """The stored fields that this version knows, and the names of the others."""
    if not isinstance(stored, dict):
        return {}, ["everything"]
    known: dict[str, Any] = {}
    for name, value in stored.items():
        if name == "errors" and isinstance(value, dict):
            known[name] = {error: how for error, how in value.items() if how in list(Treatment)}
        elif name in _KINDS and _is_a(value, _KINDS[name]):
            known[name] = value
    return known, sorted(name for name, value in stored.items() if name not in known or known[name] != value)


def _is_a(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


_KINDS = {field.name: field.type for field in msgspec.structs.fields(Policy)}


def _invalid(text: str, **details: str) -> Invalid:
    return Invalid(text, code="invalid_policy", **details)


def _refuse_unknown(changes: dict[str, Any]) -> None:
    """Raise for unknown fields, with the nearest known one."""
    for name in changes:
        if name not in Policy.__struct_fields__:
            near = get_close_matches(str(name), Policy.__struct_fields__, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`holdfast lifecycle show default` lists its fields"
            raise _invalid(f"policy has no {name!r}; {hint}", name=name)
    errors = changes.get("errors")
    for error, how in errors.items() if isinstance(errors, dict) else ():
        if how not in list(Treatment):
            only = f"only as {', '.join(Treatment)}"
            raise _invalid(f"policy errors: {error} cannot be treated as {how!r}, {only}", name="errors")


_POSITIVE = (
    "lease_seconds",
    "heartbeat_seconds",
    "max_lost",
    "backoff_factor",
    "backoff_cap_seconds",
    "throttle_cap_seconds",
    "offline_seconds",
    "timeout_seconds",
    "no_progress_seconds",
    "max_runtime_seconds",
    "idempotency_window_seconds",
)
