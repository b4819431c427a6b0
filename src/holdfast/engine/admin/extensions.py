"""Extensions that the database knows: which processes have them, which jobs need them, and how to forget one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.engine.admin.audit import audited
from holdfast.engine.context import EngineContext
from holdfast.engine.declare import put_needs
from holdfast.engine.reads.missing_extensions import COUNTED_MAX, MISSING_SECONDS
from holdfast.errors import Conflict, UnknownName
from holdfast.model.json import encode_or_none
from holdfast.store import Tx, q


class KnownExtension(msgspec.Struct, frozen=True):
    """`live`: a live process has it. `job_types`: the types with its hooks, and the apps that declare so. `jobs`: the
    number of unfinished jobs that need it, counted up to `COUNTED_MAX`."""

    name: str
    live: bool
    seen_at: datetime | None
    job_types: dict[str, list[str]]
    jobs: int


class Forgotten(msgspec.Struct, frozen=True):
    name: str
    job_types: list[str]
    jobs: int


async def known(tx: Tx) -> list[KnownExtension]:
    seen = {row["name"]: row for row in await tx.all(q.extensions)}
    types: dict[str, dict[str, list[str]]] = {}
    for row in await tx.all(q.types_with_needs):
        for app, names in _by_app(row).items():
            for name in names:
                types.setdefault(name, {}).setdefault(row["name"], []).append(app)
    found = []
    for name in sorted({*seen, *types}):
        seen_at = seen[name]["seen_at"] if name in seen else None
        live = seen_at is not None and seen_at > seen[name]["now_at"] - timedelta(seconds=MISSING_SECONDS)
        [row] = await tx.all(q.jobs_that_need, extension=name, limit=COUNTED_MAX)
        found.append(KnownExtension(name, live, seen_at, types.get(name, {}), row["jobs"]))
    return found


async def require_forgettable(tx: Tx, name: str) -> KnownExtension:
    extensions = {one.name: one for one in await known(tx)}
    if name not in extensions:
        raise UnknownName.of("extension", name, sorted(extensions))
    if extensions[name].live:
        raise Conflict(
            f"a live process has extension {name!r}; stop the processes of the apps that include it, and try again "
            f"{MISSING_SECONDS:.0f} s later",
            code="extension_in_use",
            name=name,
        )
    return extensions[name]


async def forget(tx: Tx, ctx: EngineContext, name: str, *, by: str | None = None) -> Forgotten:
    """Remove the need for an extension from types and unfinished jobs, as when its app was renamed or removed: its
    hooks no longer run for them. The tables of the extension stay."""
    await require_forgettable(tx, name)
    batch = ctx.limits.sweep_batch
    types = [row["name"] for row in await tx.all(q.types_with_needs) if await _forget_in_type(tx, row, name)]
    jobs = 0
    for row in await tx.all(q.needs_that_name, extension=name):
        after = encode_or_none([need for need in msgspec.json.decode(row["needs"]) if need != name])
        for _ in range(0, row["jobs"], batch):
            jobs += len(await tx.all(q.change_needs, before=row["needs"], after=after, limit=batch))
    for query in (q.forget_extension, q.forget_tasks_of, q.forget_failures_of):
        await tx.all(query, name=name)
    await audited(tx, by, "extension.forget", name, {"jobTypes": types, "jobs": jobs})
    return Forgotten(name, types, jobs)


async def _forget_in_type(tx: Tx, row: Any, name: str) -> bool:
    before = _by_app(row)
    now = {app: [need for need in needs if need != name] for app, needs in before.items()}
    if now == before:
        return False
    if await put_needs(tx, row["name"], row["needs_by"], now) is None:
        raise Conflict(f"an app has just declared job type {row['name']!r}; try again", code="job_type_contended")
    return True


def _by_app(row: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = msgspec.json.decode(row["needs_by"])
    return found
