"""declare: store what an app declares about its job types, so that every process creates their jobs alike.

Two apps may declare the same type differently. The declaration of the app that has live workers stays in force, and
both apps get a conflict. An app that changes its own declaration, as in an upgrade, replaces it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.engine.admin.limits import declare_limits, limits_of_type
from holdfast.engine.registry import PolicyRegistry
from holdfast.errors import Conflict, Invalid
from holdfast.lifecycle import BUILT_IN
from holdfast.lifecycle.render import to_data
from holdfast.model import JobType, Liveness, WorkerRecord
from holdfast.model.json import encode, encode_or_none
from holdfast.store import Row, Tx, q

JSON_BYTES_MAX = 65_536
TRIES_MAX = 10
APP = "app"  # where a worker's metadata names its app

_FIELDS = ("lifecycle", "queue", "requires", "prefers", "limits")  # of a job type, beside its policy and payload
_BOTH, _CHANGED = "{}: {} and {}", "{}: {} before, {} now"  # templates for one difference

log = logging.getLogger(__name__)


class DeclarationConflict(NamedTuple):
    """Two apps, both with live workers, declare one job type differently."""

    job_type: str
    kept: str  # the app whose declaration is in force
    other: str
    differs: list[str]  # "queue: 'mail' and 'default'", in the order of the apps
    severe: bool  # one app cannot run the jobs of the other

    @property
    def text(self) -> str:
        return (
            f"apps {self.kept!r} and {self.other!r} declare job type {self.job_type!r} differently "
            f"({'; '.join(self.differs)}); that of {self.kept!r} is in force. Rename one of the types, declare both "
            "alike, or, if it is the same app, give it one name: App(name=...)"
        )


async def declare(
    tx: Tx, registry: PolicyRegistry, types: Sequence[JobType], app: str | None
) -> list[DeclarationConflict]:
    """Store the declarations, except where another app with live workers declares otherwise; return the conflicts."""
    rows = {row["name"]: row for row in await tx.all(q.job_types)}
    await _keep_lifecycles(tx, registry, types, {row["lifecycle"]: row["machine"] for row in rows.values()})
    conflicts = []
    for declared in types:
        conflict = await _declare(tx, registry, declared.in_order, app, rows.get(declared.name))
        await _declare_needs(tx, declared, app or "", known=declared.name in rows)
        if conflict is not None:
            conflicts.append(conflict)
        else:
            await declare_limits(tx, limits_of_type(declared))
    await declare_limits(tx, registry.named_limits)
    await _warn_of_limits(tx, types)
    return conflicts


async def _warn_of_limits(tx: Tx, types: Sequence[JobType]) -> None:
    """Of named limits that do not exist, or have fewer units than a job takes."""
    taken = {(name, units, declared.name) for declared in types for name, units in declared.limits.units.items()}
    for name, units, job_type in sorted(taken):
        row = await tx.one(q.limit, name=name)
        if row is None:
            log.warning(
                "job type %r names limit %r, which no app declares: it limits nothing until app.limit(%r, ...) "
                "declares it, or `holdfast limits set %s` sets it",
                *(job_type, name, name, name),
            )
        elif row["concurrency"] is not None and units > row["concurrency"]:
            log.warning(
                "job type %r takes %d units of limit %r, which has %d: its jobs never run",
                *(job_type, units, name, row["concurrency"]),
            )


async def _keep_lifecycles(
    tx: Tx, registry: PolicyRegistry, types: Sequence[JobType], kept: dict[str, str | None]
) -> None:
    """Store lifecycles that are not built in, so that a server without the app can create and show their jobs."""
    machines = {declared.lifecycle: registry.machine_of(declared) for declared in types}
    for name, machine in sorted(machines.items()):
        body = msgspec.json.encode(to_data(machine), order="deterministic").decode()
        if machine not in BUILT_IN and kept.get(name) != body:
            await tx.one(q.put_lifecycle, name=name, body=body)


async def _declare(
    tx: Tx, registry: PolicyRegistry, declared: JobType, app: str | None, row: Row | None
) -> DeclarationConflict | None:
    kept = None if row is None else registry.read_type(row)
    if row is None or kept is None:
        await _put(tx, declared, app)
    elif _without_needs(kept) == _without_needs(declared):
        if row["conflict"] is not None and await _is_over(tx, _conflict(row), app):
            await tx.one(q.note_conflict, name=declared.name, conflict=None)
    elif app is None or row["declared_by"] in (None, app):
        log.info(
            "declaration of job type %r changed: %s", declared.name, "; ".join(_differences(kept, declared, _CHANGED))
        )
        await _put(tx, declared, app)
    elif not await _is_in_use(tx, row["declared_by"]):
        log.warning(
            "declaration of job type %r by app %r, which has no live worker, replaced by that of app %r: %s",
            *(declared.name, row["declared_by"], app, "; ".join(_differences(kept, declared, _CHANGED))),
        )
        await _put(tx, declared, app)
    else:
        return await _record_conflict(tx, row, kept, declared, app)
    return None


def _without_needs(declared: JobType) -> JobType:
    return msgspec.structs.replace(declared, needs=None)


async def _declare_needs(tx: Tx, declared: JobType, app: str, *, known: bool) -> None:
    """A type needs the extensions of all apps that declare it; an app changes only its own part."""
    if not known and declared.needs is None:
        return
    for _ in range(TRIES_MAX):
        row = await tx.one(q.needs_of_type, name=declared.name)
        before = None if row is None else row["needs_by"]
        by_app: dict[str, list[str]] = {} if before is None else msgspec.json.decode(before)
        if by_app.get(app) == declared.needs:
            return
        needs = await put_needs(tx, declared.name, before, {**by_app, app: declared.needs or []})
        if needs is not None:
            level = logging.DEBUG if before is None else logging.INFO
            log.log(level, "job type %r needs the hooks of: %s", declared.name, ", ".join(needs) or "no extension")
            return
    raise Conflict(
        f"too many processes declare job type {declared.name!r} at once; try again", code="job_type_contended"
    )


async def put_needs(tx: Tx, job_type: str, before: str | None, by_app: dict[str, list[str]]) -> list[str] | None:
    """Store the extensions that each app says a type needs, and return them all. None: they are not `before` now."""
    now = {app: needs for app, needs in sorted(by_app.items()) if needs}
    needs = sorted({extension for needs in now.values() for extension in needs})
    stored = {"needs": encode_or_none(needs), "needs_by": encode_or_none(now)}
    return needs if await tx.one(q.put_needs, name=job_type, before=before, **stored) is not None else None


async def adopt(tx: Tx, *, job_type: str, limit: int) -> int:
    """Apply the hooks of a type to unfinished jobs that were created before it had them. Returns their number."""
    row = await tx.one(q.needs_of_type, name=job_type)
    if row is None or row["needs"] is None:
        return 0
    return len(await tx.all(q.adopt_jobs, type=job_type, needs=row["needs"], limit=limit))


async def free(tx: Tx, *, job_types: list[str], limit: int) -> int:
    """Remove hooks that their type no longer needs from unfinished jobs. Returns the number of jobs."""
    return len(await tx.all(q.free_jobs, types=job_types, limit=limit))


async def adopt_lane(tx: Tx, job_type: str, lane: int, needs: list[str]) -> None:
    """`adopt` for a lane that this process is about to claim from: a transaction that creates jobs may have read the
    type before it had hooks, and committed afterwards."""
    row = await tx.one(q.needs_of_type, name=job_type)
    declared = None if row is None else row["needs"]
    await tx.all(q.adopt_lane, lane=lane, needs=declared or encode_or_none(needs))


async def _record_conflict(tx: Tx, row: Row, kept: JobType, declared: JobType, app: str) -> DeclarationConflict:
    severe = kept.lifecycle != declared.lifecycle or kept.schema != declared.schema
    found = DeclarationConflict(declared.name, row["declared_by"], app, _differences(kept, declared, _BOTH), severe)
    log.warning("%s", found.text)
    text = msgspec.json.encode(found._asdict()).decode()
    if row["conflict"] != text:
        await tx.one(q.note_conflict, name=declared.name, conflict=text)
    return found


async def _is_over(tx: Tx, conflict: DeclarationConflict, app: str | None) -> bool:
    """The other app now declares the same; or the app in force restarts, and the other has no live worker."""
    return conflict.other == app or (conflict.kept == app and not await _is_in_use(tx, conflict.other))


async def contradictions(tx: Tx) -> list[DeclarationConflict]:
    """The conflicts that are recorded in the database."""
    return [_conflict(row) for row in await tx.all(q.job_types) if row["conflict"] is not None]


def _conflict(row: Row) -> DeclarationConflict:
    return DeclarationConflict(**msgspec.json.decode(row["conflict"]))


def refuse_severe(found: Iterable[DeclarationConflict]) -> None:
    """Raise on a severe conflict: a worker or server of this app would run the other app's jobs wrongly."""
    severe = [each for each in found if each.severe]
    if severe:
        raise Invalid(severe[0].text, code="job_type_conflict", name=severe[0].job_type)


async def _is_in_use(tx: Tx, app: str) -> bool:
    workers = [WorkerRecord.from_row(row) for row in await tx.all(q.workers)]
    return any(
        worker.liveness is not Liveness.OFFLINE
        and isinstance(worker.metadata, dict)
        and worker.metadata.get(APP) == app
        for worker in workers
    )


def _differences(kept: JobType, declared: JobType, template: str) -> list[str]:
    values = [(name, getattr(kept, name), getattr(declared, name)) for name in _FIELDS]
    knobs = sorted(kept.policy.keys() | declared.policy.keys())
    values += [(knob, kept.policy.get(knob), declared.policy.get(knob)) for knob in knobs]
    found = [template.format(name, _text(was), _text(now)) for name, was, now in values if was != now]
    return found + (["different payload schemas"] if kept.schema != declared.schema else [])


def _text(value: Any) -> str:
    return "not set" if value is None else repr(msgspec.to_builtins(value))


async def _put(tx: Tx, declared: JobType, app: str | None) -> None:
    await tx.one(
        q.put_job_type,
        name=declared.name,
        lifecycle=declared.lifecycle,
        queue=declared.queue,
        policy=encode(declared.policy, "policy", max_bytes=JSON_BYTES_MAX),
        requires=encode(declared.requires, "requires", max_bytes=JSON_BYTES_MAX),
        prefers=encode(declared.prefers, "prefers", max_bytes=JSON_BYTES_MAX),
        limits=msgspec.json.encode(declared.limits).decode(),
        schema=declared.schema,
        declared_by=app,
    )
