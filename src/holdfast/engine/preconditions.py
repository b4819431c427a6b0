"""Checks before a transition: a clear error where the database would only match no row."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engine.context import EngineContext
from holdfast.errors import ExtensionMissing, IllegalMove
from holdfast.ids import is_uuid
from holdfast.lifecycle import Actor, Machine, State
from holdfast.store import Row, Tx, q


def require_move(machine: Machine, verb: str, job_id: str, source: State, target: State, actor: Actor) -> None:
    move = machine.move(verb, source, target)
    if move is None:
        raise IllegalMove(
            f"job {job_id}: lifecycle {machine.name!r} does not allow {verb} from {machine.words[source]!r}; "
            f"it allows: {', '.join(dict.fromkeys(m.verb for m in machine.moves if m.source == source))}",
            job_id=job_id,
            verb=verb,
        )
    if actor not in move.actors:
        allowed = ", ".join(sorted(move.actors))
        raise IllegalMove(
            f"job {job_id}: {actor} may not {verb} a job that is {machine.words[source]!r}; only {allowed} may",
            code="actor_not_allowed",
            job_id=job_id,
            verb=verb,
        )


def extension_missing(job_id: str, job_type: str, missing: list[str]) -> ExtensionMissing:
    names = ", ".join(missing)
    return ExtensionMissing(
        f"job {job_id} ({job_type}) needs the hooks of extension {names}, which this process does not have; use a "
        "process of the app that includes it: --app MODULE:APP",
        job_id=job_id,
        extension=names,
    )


def type_needs(job_type: str, missing: list[str]) -> ExtensionMissing:
    names = ", ".join(missing)
    return ExtensionMissing(
        f"job type {job_type!r} needs the hooks of extension {names}, which this process does not have; create its "
        "jobs with the app that includes it (for a server too): --app MODULE:APP",
        name=job_type,
        extension=names,
    )


async def movable(
    tx: Tx, ctx: EngineContext, ids: Iterable[str], verb: str, source: State, target: State, actor: Actor
) -> list[Row]:
    """The jobs in state `source`, in order; raises if the transition to `target` is not allowed for one of them."""
    asked = [job_id for job_id in ids if is_uuid(job_id)]
    found = await tx.all(q.jobs_by_id, ids=asked) if asked else []
    rows = [row for row in found if row["state"] == source]
    snapshots = await ctx.registry.snapshots(tx, (row["policy"] for row in rows))
    for row in rows:
        if missing := ctx.hooks.missing_of(row):
            raise extension_missing(row["id"], row["type"], missing)
        require_move(snapshots[row["policy"]].machine, verb, row["id"], source, target, actor)
    return rows
