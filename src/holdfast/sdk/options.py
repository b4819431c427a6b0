"""The options of one job, apart from the arguments of its handler: queue, delay, retries, key and so on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, TypedDict

import msgspec

from holdfast.errors import Invalid
from holdfast.model import NewJob
from holdfast.model.derived_key import with_derived_key
from holdfast.model.limits import units_of

Seconds = float | timedelta
Names = (
    list[str] | tuple[str, ...] | set[str] | frozenset[str]
)  # not a single string, which would be split into letters
Treated = Literal["transient", "throttled", "permanent"]


class PolicyKnobs(TypedDict, total=False):
    """The fields of `Policy` that `@app.job` takes by name, for type checkers and completion."""

    lease_seconds: float
    heartbeat_seconds: float
    max_lost: int
    backoff_base_seconds: float
    backoff_factor: float
    backoff_cap_seconds: float
    backoff_jitter: float
    throttle_cap_seconds: float
    unknown_errors: Treated
    late_writes: bool
    reaping: Literal["expired", "expired_and_offline"]
    offline_seconds: float
    timeout_seconds: float | None
    no_progress_seconds: float | None
    max_runtime_seconds: float | None
    cancel_grace_seconds: float
    defer_seconds: float
    keep_completed_parts: bool
    discard_partial_parts: bool
    idempotency: Literal["forever", "window", "until_failed", "window_until_failed"]
    idempotency_window_seconds: float


class PolicyOptions(PolicyKnobs, total=False):
    """Every field of `Policy`."""

    max_attempts: int
    errors: Mapping[str, Treated]


class JobOptions(TypedDict, total=False):
    """What `.options()` takes: the fields of `Options` below."""

    queue: str | None
    priority: int
    delay: Seconds | None
    run_at: datetime | None
    idempotency_key: str | None
    key_from: str | None
    max_attempts: int | None
    timeout: Seconds | None
    tags: Names | None
    lifecycle: str | None
    requires: Names | None
    prefers: Names | None
    tenant: str
    partition_key: str | None
    limit_key: str | None
    fairness_key: str | None
    limits: Names | Mapping[str, int] | None
    subject: str | None
    policy: PolicyOptions
    connection: Any


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in msgspec.structs.fields(NewJob)}


@dataclass(frozen=True, kw_only=True)
class Options:
    """None: as the job type declares."""

    queue: str | None = None
    priority: int = 0
    delay: Seconds | None = None
    run_at: datetime | None = None
    idempotency_key: str | None = None
    key_from: str | None = None  # a subject: equal calls for it within two minutes are one job
    max_attempts: int | None = None
    timeout: Seconds | None = None
    tags: list[str] | None = None
    lifecycle: str | None = None
    requires: list[str] | None = None
    prefers: list[str] | None = None
    tenant: str = "default"
    partition_key: str | None = None
    limit_key: str | None = None
    fairness_key: str | None = None
    limits: Mapping[str, int] | None = None  # the named limits of the job, and the units that it takes of each
    subject: str | None = None  # what the job is about, as the app names it: an id of a video, of an order
    policy: Mapping[str, Any] | None = None  # any other field of the policy, for this job only
    connection: Any = None

    def but(self, **words: Any) -> Options:
        """A copy with some options replaced."""
        refuse_unknown(words, Options.__dataclass_fields__)
        several = {name: names(words[name]) for name in words.keys() & {"tags", "requires", "prefers"}}
        if "limits" in words:
            several["limits"] = units_of(words["limits"])
        return replace(self, **words | several)

    @property
    def differ(self) -> bool:
        """Whether jobs of one call of `enqueue_many` differ in more than their payloads, or need a connection."""
        return self.key_from is not None or self.connection is not None

    def new_job(self, job_type: str, payload: dict[str, Any]) -> NewJob:
        new = NewJob(type=job_type, payload=payload, **self._given)
        return new if self.key_from is None else with_derived_key(new, self.key_from, payload)

    @cached_property
    def _given(self) -> dict[str, Any]:
        """The fields of a job that differ from their defaults."""
        policy: Any = self.policy
        if self.timeout is not None:
            policy = {**(policy or {}), "timeout_seconds": seconds(self.timeout)}
        given = {
            "tenant": self.tenant,
            "lifecycle": self.lifecycle,
            "queue": self.queue,
            "priority": self.priority,
            "run_at": self.run_at,
            "delay_seconds": None if self.delay is None else seconds(self.delay),
            "idempotency_key": self.idempotency_key,
            "max_attempts": self.max_attempts,
            "policy": policy,
            "requires": self.requires,
            "prefers": self.prefers,
            "partition_key": self.partition_key,
            "limit_key": self.limit_key,
            "fairness_key": self.fairness_key,
            "limits": self.limits,
            "subject": self.subject,
        }
        if self.tags is not None:
            given["tags"] = self.tags
        return {name: value for name, value in given.items() if value is not _DEFAULTS[name]}


def refuse_unknown(words: Iterable[str], known: Iterable[str]) -> None:
    there_are = sorted(set(known))
    for word in sorted(set(words).difference(there_are)):
        near = "".join(f" did you mean {name!r}?" for name in get_close_matches(word, there_are, n=1))
        raise Invalid(f"unknown option {word!r};{near} there are {', '.join(there_are)}", code="unknown_option")


def seconds(span: Seconds) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else span


def names(given: Any) -> Any:
    """A list. A single string is left as it is, and rejected where names are checked."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else given
