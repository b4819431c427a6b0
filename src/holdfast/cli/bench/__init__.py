"""`holdfast bench`: measures throughput and latency on your own database."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.app_option import named_app
from holdfast.cli.confirm import confirmed, require_terminal
from holdfast.cli.database import settings_of, with_engine
from holdfast.cli.exit_codes import FAILED
from holdfast.cli.output import count, print_json, print_table
from holdfast.cli.parser import command, whole_number
from holdfast.redaction import without_password
from holdfast.settings import Settings, load

if TYPE_CHECKING:
    from holdfast.cli.bench.figures import Figure
    from holdfast.cli.bench.measure import Measured
    from holdfast.engine import Engine

STAYS = (
    "what remains: the job type, the queue and the workers named {name} (the workers for a day), "
    "and free space in the database files"
)


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "bench",
        run,
        about="benchmark enqueue, drain and start latency on your own database",
        more="It enqueues empty jobs of their own type and queue, starts workers that run them, and removes them. "
        "Hand-written SQL is measured in the same run for comparison. If the database has other work, it asks first, "
        "because both would be slower.",
        examples=["holdfast bench", "holdfast bench --jobs 100000 --processes 2 --json"],
        may_be_first=True,
    )
    jobs, processes = whole_number(20, 1_000_000), whole_number(1, 64)
    parser.add_argument("--jobs", type=jobs, default=20_000, metavar="N", help="number of jobs to drain (20000)")
    parser.add_argument("--concurrency", type=int, metavar="N", help="concurrent jobs in each worker process (10)")
    parser.add_argument("--processes", type=processes, default=1, metavar="N", help="number of worker processes (1)")
    parser.add_argument("--yes", action="store_true", help="skip the confirmation")


def run(options: argparse.Namespace) -> int:
    overrides = {"database_url": options.database, "concurrency": options.concurrency}
    settings = load(overrides=overrides, extensions=None)
    if named_app(options) is not None:
        options.database = settings_of(options).url  # the workers run the bench app on this database
        settings = msgspec.structs.replace(settings, database_url=options.database)
    others = with_engine(options, _other_work)
    if others and not options.yes:
        require_terminal("measure beside other work", f": {others}")
        if not confirmed(f"{others}; both would be slower. Continue?"):
            return FAILED
    measured = asyncio.run(_measure(options, settings))
    if options.json:
        print_json(_view(measured, options, settings))
    else:
        _print(measured, options, settings)
    return 0


async def _other_work(engine: Engine) -> str:
    """A sentence about unfinished jobs and live workers in the database; empty if there are none."""
    from holdfast.cli.bench.app import NAME
    from holdfast.cli.top.collector import Collector

    collector = Collector(engine, "")
    snapshot = await collector.collect()
    await collector.close()
    queues = [queue for queue in snapshot.queues if queue.queue != NAME]
    jobs = sum(queue.unfinished for queue in queues)
    workers = [worker for worker in snapshot.workers if worker.alive]
    found = [count(jobs, "unfinished job")] if jobs else []
    found += [f"{count(len(workers), 'worker')} with a heartbeat in the last 90 s"] if workers else []
    return f"this database has other work: {' and '.join(found)}" if found else ""


async def _measure(options: argparse.Namespace, settings: Settings) -> Measured:
    from holdfast.cli.bench.app import app
    from holdfast.cli.bench.measure import BenchPlan, measure

    app.settings = settings
    arguments = [
        *(["--database", options.database] if options.database else []),
        *(["--concurrency", str(options.concurrency)] if options.concurrency else []),
    ]
    async with app:
        return await measure(await app.engine(), BenchPlan(options.jobs, options.processes, arguments))


def _view(measured: Measured, options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    return {
        "database": without_password(settings.url),
        "jobs": options.jobs,
        "processes": options.processes,
        "concurrency": settings.concurrency,
        "figures": msgspec.to_builtins(measured.figures),
        "removed": measured.removed,
        "stays": measured.stays,
    }


def _print(measured: Measured, options: argparse.Namespace, settings: Settings) -> None:
    from holdfast.cli.bench.app import NAME

    print_table(["figure", "measured", "raw SQL", "ratio", "meaning"], map(_row, measured.figures))
    workers = f"worker processes: {options.processes}, slots in each: {settings.concurrency}"
    notes = [
        f"{count(options.jobs, 'job')} with 100 bytes of payload on {without_password(settings.url)}; {workers}",
        f"removed {count(measured.removed, 'job')} with their history",
        STAYS.format(name=NAME),
    ]
    if measured.stays:
        notes.append(f"{count(measured.stays, 'job')} could not be removed: the lease of a stopped worker is not over")
    print("", *notes, sep="\n", file=sys.stderr)


def _row(figure: Figure) -> list[str]:
    return [
        figure.name.replace("_", " "),
        f"{figure.value:,.0f} {figure.unit}" if figure.unit != "ms" else f"{figure.value:.1f} ms",
        "" if figure.by_hand is None else f"{figure.by_hand:,.0f} {figure.unit}",
        "" if figure.share is None else f"{figure.share:.2f}",
        figure.meaning,
    ]
