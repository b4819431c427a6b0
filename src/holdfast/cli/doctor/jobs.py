"""Jobs that do not get on, whichever database they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.cli.doctor.finding import Finding, ok, warn
from holdfast.cli.output import count, time_text
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.engine import Clause, Engine
    from holdfast.engine.declare import Contradiction
    from holdfast.engine.maintenance.prune import Overdue
    from holdfast.engine.reads.why import Wanted
    from holdfast.store import Row, Tx

HOUR = 3600.0
LANES_SHOWN = 5


async def examine(engine: Engine, settings: Settings) -> list[Finding]:
    from holdfast.assembly.engine import retention
    from holdfast.engine.declare import contradictions
    from holdfast.engine.reads.missing_extensions import missing, needed
    from holdfast.engine.reads.why import unserved
    from holdfast.store import q

    patience = 6 * settings.sweep_seconds

    async def work(tx: Tx) -> list[Finding]:
        return [
            _maintenance(await tx.one(q.last_sweep, seconds=patience)),
            _leases(await tx.one(q.leases_long_over, seconds=patience + settings.startup_grace_seconds)),
            _unserved(await unserved(tx)),
            _deaths(await tx.all(q.recent_deaths, seconds=HOUR)),
            _job_types(await contradictions(tx)),
            *_missing(await missing(tx)),
            *_tasks(await tx.all(q.maintenance)),
        ]

    absent = await engine.store.read(needed)
    return [*await engine.store.read(work), _retention(await engine.maintenance.overdue(retention(settings)), absent)]


def _maintenance(sweep: Row | None) -> Finding:
    if sweep is None or sweep["swept_at"] is None:
        said = "has never run"
    else:
        said = f"last ran at {time_text(sweep['swept_at'])} UTC"
    if sweep and sweep["needed"] and not sweep["fresh"]:
        return warn("maintenance", f"{said}: jobs that are due or lost are not found", "run a worker, which does it")
    return ok("maintenance", said)


def _missing(found: Mapping[str, int]) -> list[Finding]:
    from holdfast.engine.reads.missing_extensions import told

    return [
        warn(
            f"extension {name}",
            said,
            "run a worker or a server of an app that includes it; if there is none any more: "
            f"`holdfast extensions forget {name}`",
        )
        for name, said in zip(found, told(found), strict=True)
    ]


def _tasks(tasks: list[Row]) -> list[Finding]:
    """Maintenance of extensions."""
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
        return ok("leases", "none is long over")
    since = time_text(over["oldest_at"])
    said = f"{count(over['jobs'], 'job')} still counted as running, though the lease ended, first at {since} UTC"
    return warn("leases", said, "run a worker: its maintenance takes them back")


def _unserved(lanes: list[tuple[Wanted, Clause]]) -> Finding:
    if not lanes:
        return ok("workers", "every kind of job that waits has a live worker that may take it")
    shown = [_lane(*lane) for lane in lanes[:LANES_SHOWN]]
    more = [f"and {len(lanes) - LANES_SHOWN} more"] if len(lanes) > LANES_SHOWN else []
    return warn("workers", f"no live worker may take {', '.join(shown + more)}", "`holdfast jobs why ID` says more")


def _lane(wanted: Wanted, obstacle: Clause) -> str:
    needs = {
        "type": " (no live worker runs this type)",
        "tenant": f" (of tenant {wanted.tenant!r})",
        "capabilities": f" (needs {', '.join(wanted.requires)})",
    }
    return f"{wanted.type!r} of queue {wanted.queue!r}{needs.get(obstacle.name, '')}"


def _deaths(deaths: list[Row]) -> Finding:
    if not deaths:
        return ok("deaths", "no job died in the last hour")
    total = sum(row["jobs"] for row in deaths)
    reasons = ", ".join(f"{row['reason']} {row['jobs']}" for row in deaths[:LANES_SHOWN])
    return warn(
        "deaths", f"{count(total, 'job')} died in the last hour: {reasons}", "`holdfast jobs list --state dead`"
    )


def _job_types(found: list[Contradiction]) -> Finding:
    if not found:
        return ok("job types", "no two apps declare one differently")
    return warn("job types", found[0].text, f"and so {count(len(found) - 1, 'other type')}" if len(found) > 1 else "")


def _retention(overdue: Overdue, absent: list[str]) -> Finding:
    if not overdue.jobs and not overdue.deliveries:
        return ok("retention", "nothing is left whose time is over")
    said = f"not deleted although their time is over: {_many(overdue.jobs, 'job')}, "
    said += _many(overdue.deliveries, "webhook delivery", "webhook deliveries")
    if absent and overdue.jobs:
        names = ", ".join(absent)
        said += f"; no live process has extension {names}, without which jobs that have hooks of it are not deleted"
    return warn("retention", said, "run a worker and a server: they delete them; if they run, look at their logs")


def _many(number: int, one: str, several: str = "") -> str:
    from holdfast.engine.maintenance.prune import OVERDUE_MAX

    return f"{number:,}{' or more' if number >= OVERDUE_MAX else ''} {one if number == 1 else several or one + 's'}"
