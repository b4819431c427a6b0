"""The reads of `holdfast doctor`: jobs that make no progress, maintenance that does not run, missing extensions."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.declare import DeclarationConflict, contradictions
from holdfast.engine.reads.missing_extensions import missing, needed
from holdfast.engine.reads.why import Clause, LaneRequirements, unserved
from holdfast.store import Row, Tx, q

DEAD_SECONDS = 3600.0


class Diagnosis(NamedTuple):
    last_sweep: Row | None
    expired_leases: Row | None
    unserved: list[tuple[LaneRequirements, Clause]]
    dead: list[Row]  # in the last hour, by reason
    conflicts: list[DeclarationConflict]
    missing: dict[str, int]  # extensions that unfinished jobs need, with the number of jobs
    needed: list[str]  # missing extensions that job types have hooks of
    tasks: list[Row]  # maintenance of extensions


async def diagnosis(tx: Tx, *, sweep_seconds: float, lease_seconds: float) -> Diagnosis:
    """`sweep_seconds`: maintenance should have run in this time; `lease_seconds`: an expired lease should be reaped."""
    return Diagnosis(
        last_sweep=await tx.one(q.last_sweep, seconds=sweep_seconds),
        expired_leases=await tx.one(q.leases_long_over, seconds=lease_seconds),
        unserved=await unserved(tx),
        dead=await tx.all(q.recent_deaths, seconds=DEAD_SECONDS),
        conflicts=await contradictions(tx),
        missing=await missing(tx),
        needed=await needed(tx),
        tasks=await tx.all(q.maintenance),
    )
