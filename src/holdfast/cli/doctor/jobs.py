"""`holdfast doctor`: checks for jobs that make no progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.cli.doctor.finding import Finding, ok, warn
from holdfast.cli.output import count, time_text
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.engine import Clause, Engine
    from holdfast.engine.declare import DeclarationConflict
    from holdfast.engine.maintenance.prune import Overdue
    from holdfast.engine.reads.why import LaneRequirements
    from holdfast.store import Row

LANES_SHOWN = 5


async def examine(engine: Engine, settings: Settings) -> list[Finding]:
    from holdfast.assembly.engine import retention

    sweep_seconds = 6 * settings.sweep_seconds
    found = await engine.reads.diagnosis(
        sweep_seconds=sweep_seconds, lease_seconds=sweep_seconds + settings.startup_grace_seconds
    )
    return [
        _maintenance(found.last_sweep),
        _leases(found.expired_leases),
        _unserved(found.unserved),
        _dead(found.dead),
        _job_types(found.conflicts),
        *_missing(found.missing),
        *_tasks(found.tasks),
        _retention(await engine.maintenance.overdue(retention(settings)), found.needed),
    ]


def _maintenance(sweep: Row | None) -> Finding:
    if sweep is None or sweep["swept_at"] is None:
        text = "has never run"
    else:
        text = f"last ran at {time_text(sweep['swept_at'])} UTC"
    if sweep and sweep["needed"] and not sweep["fresh"]:
        return warn(
            "maintenance", f"{text}: due and lost jobs are not requeued", "run a worker, which does maintenance"
        )
    return ok("maintenance", text)


def _missing(found: Mapping[str, int]) -> list[Finding]:
    from holdfast.engine.reads.missing_extensions import sentences

    return [
        warn(
            f"extension {name}",
            text,
            "run a worker or a server of an app that includes it; if there is none: "
            f"`holdfast extensions forget {name}`",
        )
        for name, text in zip(found, sentences(found), strict=True)
    ]


def _tasks(tasks: list[Row]) -> list[Finding]:
    """Maintenance tasks of extensions."""
    ran = [f"{_task(row)} {_last(row)}" for row in tasks if not row["failures"]]
    found = [ok("maintenance of extensions", ", ".join(ran))] if ran else []
    return found + [
        warn(
            f"maintenance {_task(row)}",
            f"failed {count(row['failures'], 'time')} in a row, {_last(row)}: {row['error']}",
            f"see the log of a process that has extension {row['extension']}",
        )
        for row in tasks
        if row["failures"]
    ]


def _task(row: Row) -> str:
    return f"{row['extension']}.{row['task']}"


def _last(row: Row) -> str:
    return "has never run" if row["ran_at"] is None else f"last ran at {time_text(row['ran_at'])} UTC"


def _leases(over: Row | None) -> Finding:
    if over is None or not over["jobs"]:
        return ok("leases", "no expired lease is waiting to be reaped")
    since = time_text(over["oldest_at"])
    text = f"{count(over['jobs'], 'job')} still running although the lease expired, the first at {since} UTC"
    return warn("leases", text, "run a worker: its maintenance requeues them")


def _unserved(lanes: list[tuple[LaneRequirements, Clause]]) -> Finding:
    if not lanes:
        return ok("workers", "every waiting job has a live worker that can claim it")
    shown = [_lane(*lane) for lane in lanes[:LANES_SHOWN]]
    more = [f"and {len(lanes) - LANES_SHOWN} more"] if len(lanes) > LANES_SHOWN else []
    return warn("workers", f"no live worker can claim {', '.join(shown + more)}", "see `holdfast jobs why ID`")


def _lane(wanted: LaneRequirements, obstacle: Clause) -> str:
    needs = {
        "type": " (no live worker runs this type)",
        "tenant": f" (of tenant {wanted.tenant!r})",
        "capabilities": f" (needs {', '.join(wanted.requires)})",
    }
    return f"{wanted.type!r} of queue {wanted.queue!r}{needs.get(obstacle.name, '')}"


def _dead(dead: list[Row]) -> Finding:
    if not dead:
        return ok("dead jobs", "none in the last hour")
    total = sum(row["jobs"] for row in dead)
    reasons = ", ".join(f"{row['reason']} {row['jobs']}" for row in dead[:LANES_SHOWN])
    return warn(
        "dead jobs", f"{count(total, 'job')} died in the last hour: {reasons}", "see `holdfast jobs list --state dead`"
    )


def _job_types(found: list[DeclarationConflict]) -> Finding:
    if not found:
        return ok("job types", "no conflicting declarations")
    return warn(
        "job types", found[0].text, f"the same for {count(len(found) - 1, 'other type')}" if len(found) > 1 else ""
    )


def _retention(overdue: Overdue, absent: list[str]) -> Finding:
    if not overdue.jobs and not overdue.deliveries:
        return ok("retention", "nothing is overdue for deletion")
    text = f"overdue for deletion: {_many(overdue.jobs, 'job')}, "
    text += _many(overdue.deliveries, "webhook delivery", "webhook deliveries")
    if absent and overdue.jobs:
        names = ", ".join(absent)
        text += f"; no live process has extension {names}, which is needed to delete jobs with its hooks"
    return warn("retention", text, "run a worker and a server, which delete them; if they run, check their logs")


def _many(number: int, one: str, several: str = "") -> str:
    from holdfast.engine.maintenance.prune import OVERDUE_MAX

    return f"{number:,}{' or more' if number >= OVERDUE_MAX else ''} {one if number == 1 else several or one + 's'}"
