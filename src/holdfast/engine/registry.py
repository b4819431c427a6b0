"""The registry of job types, policies and lanes: resolves them for new jobs, and caches them.

Policies and lanes are interned: the database stores each distinct one once, their rows never change, and a job refers
to those in force when it was created. So a snapshot of the whole policy costs four bytes per job.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.engine.policy_settings import PolicySettings
from holdfast.errors import Invalid, StoreUnavailable, UnknownName
from holdfast.lifecycle import DEFAULT, Lifecycles, Machine, Policy, Reaping
from holdfast.lifecycle.policy import readable
from holdfast.lifecycle.render import from_stored, to_data
from holdfast.model import JobType, NewJob
from holdfast.model.limits import NO_KEY_FUNCTIONS, JobLimits, KeyFunctions, Limit
from holdfast.model.names import check_name, check_names
from holdfast.model.payload_schema import Check, check_of
from holdfast.store import Row, Tx, q
from holdfast.store.queries import Query

log = logging.getLogger(__name__)

REMEMBERED_MAX = 10_000
TYPES_FRESH_SECONDS = 5  # after this time job types are read again


@dataclass(frozen=True)
class Snapshot:
    """The lifecycle and the effective policy that a job was created with."""

    machine: Machine
    policy: Policy


@dataclass(frozen=True, eq=False)
class Resolved:
    """The policy and lane of a kind of jobs. One object per kind: a batch compares them by identity."""

    machine: Machine
    policy: Policy
    policy_id: int
    policy_digest: str
    queue: str
    lane: int
    lane_digest: str
    limits: JobLimits


_Answer = TypeVar("_Answer")


class Stale(StoreUnavailable):
    """The database does not have a cached lane or policy. Nothing was written."""


class PolicyRegistry:
    def __init__(self, lifecycles: Lifecycles, clock: Clock, settings: PolicySettings | None = None) -> None:
        self._lifecycles = lifecycles
        self._clock = clock
        self._settings = settings or PolicySettings()
        self._types: dict[str, JobType] = {}
        self._types_until = -1.0
        self._learned: dict[str, str] = {}  # lifecycles of other apps, as stored in the database
        self.declare_again: Callable[[Tx], Awaitable[None]] | None = None  # declares the types of this process
        self._lost_types = False
        self._checks: dict[str, tuple[str, Check]] = {}
        self._resolved: dict[bytes, Resolved] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self._warned: set[str] = set()
        self.forgotten: list[Callable[[], None]] = []  # called after `forget`
        self.key_functions: Callable[[str], KeyFunctions] = lambda _: NO_KEY_FUNCTIONS  # of the app, by job type
        self.named_limits: Mapping[str, Limit] = {}  # that the app declares

    def forget_types(self) -> None:
        self._types_until = -1.0

    def forget(self) -> None:
        """Clear everything that was read from the database, which may have been replaced."""
        self._types, self._types_until = {}, -1.0
        self._resolved, self._snapshots, self._learned, self._lost_types = {}, {}, {}, True
        for listener in self.forgotten:
            listener()

    def stale(self) -> Stale:
        self.forget()
        return Stale("the database was restored or replaced; nothing was written: try again")

    async def types(self, tx: Tx) -> dict[str, JobType]:
        if self._clock.monotonic() >= self._types_until:
            found = await self._read_types(tx)
            if found != self._types:
                self._types, self._resolved = found, {}
            self._types_until = self._clock.monotonic() + TYPES_FRESH_SECONDS
        return self._types

    def queue_of(self, name: str) -> str:
        """The default queue of a job type, as last read."""
        return (self._types.get(name) or JobType(name=name)).queue

    async def _read_types(self, tx: Tx) -> dict[str, JobType]:
        """A row that cannot be decoded counts as not declared; the others are still read."""
        rows = await tx.all(q.job_types)
        for row in rows:
            self._learn(row)
        found = [self.read_type(row) for row in rows]
        return {declared.name: declared for declared in found if declared is not None}

    def _learn(self, row: Row) -> None:
        """Add the lifecycle of a type that another app has declared."""
        name, body = row["lifecycle"], row["machine"]
        if body is None or self._learned.get(name) == body:
            return
        self._learned[name] = body
        try:
            machine, ignored = from_stored(msgspec.json.decode(body), 0)
        except (msgspec.DecodeError, UnicodeError):
            machine, ignored = DEFAULT, ["lifecycle"]
        if ignored:
            self._warn(f"lifecycle {name!r}", [f"its {part} ({name})" for part in ignored])
        if "lifecycle" not in ignored:
            self._lifecycles.learn(machine)

    def machine_of(self, declared: JobType) -> Machine:
        return self._lifecycles[declared.lifecycle]

    def read_type(self, row: Row) -> JobType | None:
        try:
            return _type_from_row(row)
        except (msgspec.DecodeError, UnicodeError):
            self._warn(f"job type {row['name']!r}", [f"its declaration ({row['name']})"])
            return None

    @property
    def types_age(self) -> float:
        """Seconds since the types were read."""
        return self._clock.monotonic() - self._types_until + TYPES_FRESH_SECONDS

    def knows(self, name: str) -> bool:
        """Whether the type is declared, as last read."""
        return name in self._types

    def check_known(self, name: str) -> None:
        if name not in self._types:
            near = get_close_matches(name, self._types, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "no app has declared it in this database"
            raise UnknownName(f"unknown job type {name!r}; {hint}", code="unknown_job_type", name=name)

    def check_lifecycle(self, new: NewJob) -> None:
        """A request may name a lifecycle only for a type that no app has declared."""
        if new.lifecycle is None:
            return
        machine = self._lifecycles[check_name(new.lifecycle, "lifecycle")]
        declared = self._types.get(new.type)
        if declared is not None and declared.lifecycle != machine.name:
            raise Invalid(
                f"job type {new.type!r} is declared with lifecycle {declared.lifecycle!r}, but the request names "
                f"{machine.name!r}; leave the field out",
                code="lifecycle_conflict",
            )

    def check_payload(self, new: NewJob) -> None:
        """Validate the payload against the schema of its type."""
        declared = self._types.get(new.type)
        if declared is None or declared.schema is None:
            return
        kept = self._checks.get(new.type)
        if kept is None or kept[0] != declared.schema:
            kept = self._checks[new.type] = declared.schema, self._compiled(declared, declared.schema)
        kept[1](new.payload)

    def _compiled(self, declared: JobType, schema: str) -> Check:
        try:
            return check_of(declared.name, msgspec.json.decode(schema))
        except (Invalid, msgspec.DecodeError):
            self._warn(f"the payload schema of job type {declared.name!r}", [f"its schema ({declared.name})"])
            return lambda _: None

    def _types_declared(self) -> None:
        """The types of this process are declared again, after the database was restored or replaced."""
        self._lost_types = False

    def resolved(self, jobs: Sequence[NewJob]) -> list[Resolved] | None:
        """`resolve` from the cache. None: not all jobs are cached."""
        if self.types_age >= TYPES_FRESH_SECONDS:
            return None
        found: list[Resolved] = []
        known: Resolved | None = None
        alike: tuple[Any, ...] = ()
        for job in jobs:
            if (kind := _kind_of(job)) != alike:  # most batches have one kind
                known, alike = self._resolved.get(msgspec.json.encode(kind)), kind
            if known is None:
                return None
            found.append(known)
        return found

    async def resolve(self, tx: Tx, jobs: Sequence[NewJob]) -> list[Resolved]:
        """The policy and the lane of each job. New ones are inserted, which waits for locks without a timeout."""
        if (known := self.resolved(jobs)) is not None:
            return known
        fresh: dict[bytes, Resolved] = {}  # interned in this transaction
        return [await self._resolve(tx, job, fresh) for job in jobs]

    async def _resolve(self, tx: Tx, new: NewJob, fresh: dict[bytes, Resolved]) -> Resolved:
        """Precedence: request, job type, explicit settings, lifecycle, defaults."""
        types, home = await self.types(tx), self._resolved  # the cache that belongs to these types
        key = msgspec.json.encode(_kind_of(new))
        if (known := self._resolved.get(key) or fresh.get(key)) is not None:
            return known
        if self._lost_types and self.declare_again is not None:
            await self.declare_again(tx)
            self.forget_types()
            types, home = await self.types(tx), self._resolved
            tx.after_commit(self._types_declared)
        declared = types.get(new.type) or JobType(name=new.type)
        machine = self._lifecycles[new.lifecycle or declared.lifecycle]
        policy = self._policy_of(machine, declared).over(new.policy or {})
        queue = new.queue or declared.queue
        requires = check_names(declared.requires if new.requires is None else new.requires, "requires")
        prefers = check_names(declared.prefers if new.prefers is None else new.prefers, "prefers")
        policy_id, policy_digest = await _intern_policy(tx, machine, policy)
        units = declared.limits.units if new.limits is None else new.limits
        lane, lane_digest = await _intern_lane(
            tx, new.tenant, queue, new.type, requires, prefers, units, policy.defer_seconds
        )
        ids = (policy_id, policy_digest, queue, lane, lane_digest)
        resolved = fresh[key] = Resolved(machine, policy, *ids, declared.limits)
        # Cache only committed rows: the caller's transaction may still roll back.
        tx.after_commit(lambda: _remember(home, key, resolved))
        return resolved

    def _policy_of(self, machine: Machine, declared: JobType) -> Policy:
        knobs, ignored = readable(declared.policy)
        if ignored:
            self._warn(f"the policy of job type {declared.name!r}", ignored)
        return machine.policy.over({**self._settings.of(machine), **knobs})

    async def snapshot(self, tx: Tx, policy_id: int) -> Snapshot:
        if (known := self._snapshots.get(policy_id)) is not None:
            return known
        row = await tx.one(q.policy_body, id=policy_id)
        found, ignored = _read_snapshot(row)
        if ignored:
            self._warn(f"policy {policy_id}", ignored)
        tx.after_commit(lambda: _remember(self._snapshots, policy_id, found))
        return found

    async def snapshots(self, tx: Tx, policy_ids: Iterable[int]) -> dict[int, Snapshot]:
        """The snapshots of a batch of jobs, each read once."""
        return {policy_id: await self.snapshot(tx, policy_id) for policy_id in set(policy_ids)}

    def _warn(self, what: str, ignored: list[str]) -> None:
        """Warn once per name and process: thousands of policies may have it."""
        if new := [name for name in ignored if name not in self._warned]:
            self._warned.update(new)
            log.warning(
                "%s has fields that this version of Holdfast cannot read and ignores: %s. A newer version wrote them, "
                "or the row is damaged. Its jobs run with the other fields; upgrade this process to apply all of them",
                what,
                ", ".join(new),
            )


def _read_snapshot(row: Row | None) -> tuple[Snapshot, list[str]]:
    """What this version can read of a stored policy; an unreadable policy must not stop the jobs of other policies."""
    try:
        body = {} if row is None else msgspec.json.decode(row["body"])
    except (msgspec.DecodeError, UnicodeError):
        body = {}
    body = body if isinstance(body, dict) else {}
    machine, ignored = from_stored(body.get("lifecycle"), 0 if row is None else row["moves"])
    policy, more = machine.policy.over_stored(body.get("policy"))
    return Snapshot(machine, policy), list(dict.fromkeys([*ignored, *more]))


def _kind_of(job: NewJob) -> tuple[Any, ...]:
    """The fields of a job that its policy and lane depend on."""
    return (job.tenant, job.type, job.lifecycle, job.queue, job.policy, job.requires, job.prefers, job.limits)


async def unless_stale(attempt: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """Try again if the cache was stale; it is cleared then."""
    try:
        return await attempt()
    except Stale:
        return await attempt()


_Key = TypeVar("_Key")
_Known = TypeVar("_Known")


def _remember(home: dict[_Key, _Known], key: _Key, value: _Known) -> None:
    if len(home) >= REMEMBERED_MAX:  # requests with their own policy would grow it without limit
        home.clear()
    home[key] = value


async def _intern_policy(tx: Tx, machine: Machine, policy: Policy) -> tuple[int, str]:
    body = msgspec.json.encode(
        {"lifecycle": to_data(machine), "policy": msgspec.to_builtins(policy)}, order="deterministic"
    ).decode()
    seconds = ("offline_seconds", "no_progress_seconds", "max_runtime_seconds", "cancel_grace_seconds")
    stored = {
        "body": body,
        "moves": machine.mask,
        "waits_for_offline": policy.reaping is Reaping.EXPIRED_AND_OFFLINE,
        **{name: getattr(policy, name) for name in seconds},
    }
    return await _intern(tx, q.policy_id, q.put_policy, body.encode(), stored)


async def _intern_lane(
    tx: Tx,
    tenant: str,
    queue: str,
    job_type: str,
    requires: list[str],
    prefers: list[str],
    units: dict[str, int],
    defer_seconds: float,
) -> tuple[int, str]:
    lane = {
        "tenant": tenant,
        "queue": queue,
        "type": job_type,
        "requires": msgspec.json.encode(requires).decode(),
        "prefers": msgspec.json.encode(prefers).decode(),
        "limits": msgspec.json.encode(units, order="sorted").decode(),
        "defer_seconds": float(defer_seconds) if prefers else 0.0,
    }
    content = msgspec.json.encode(lane, order="deterministic")
    if await tx.one(q.tenant_id, name=tenant) is None:
        await tx.one(q.put_tenant, name=tenant)
    return await _intern(tx, q.lane_id, q.put_lane, content, lane)


async def _intern(tx: Tx, find: Query, put: Query, content: bytes, stored: dict[str, Any]) -> tuple[int, str]:
    """The id and the digest of a row, which is inserted if there is none."""
    digest = hashlib.sha256(content).hexdigest()
    row = (
        await tx.one(find, digest=digest)
        or await tx.one(put, digest=digest, **stored)
        or await tx.one(find, digest=digest)  # another transaction inserted it between the two statements
    )
    assert row is not None  # noqa: S101
    return int(row["id"]), digest


_STORED_AS_JSON: dict[str, Any] = {
    "policy": dict[str, Any],
    "requires": list[str],
    "prefers": list[str],
    "limits": JobLimits,
}


def _type_from_row(row: Row) -> JobType:
    values = {name: row[name] for name in JobType.__struct_fields__}
    for name, kind in _STORED_AS_JSON.items():
        values[name] = msgspec.json.decode(values[name], type=kind)
    if values["needs"] is not None:
        values["needs"] = msgspec.json.decode(values["needs"], type=list[str])
    return JobType(**values)
