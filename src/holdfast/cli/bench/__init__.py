"""`holdfast bench`: how fast this is on your own database."""

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
from holdfast.cli.parser import command
from holdfast.redaction import without_password
from holdfast.settings import Settings, load

if TYPE_CHECKING:
    from holdfast.cli.bench.figures import Figure
    from holdfast.cli.bench.measure import Measured
    from holdfast.engine import Engine

JOBS_MIN, JOBS_MAX = 20, 1_000_000

STAYS = (
    "what stays: the job type, the queue and the workers called {name} (the workers for a day), "
    "and room in the database that it will use again"
)


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "bench",
        run,
        about="measure how fast jobs go in and out on your own database",
        more="It enqueues jobs that do nothing, of a type and in a queue of its own, starts workers that run them, and "
        "removes them again. Beside its figures stand those of hand-written SQL in the same run. Where others work on "
        "the same database it asks first: both would be slower.",
        examples=["holdfast bench", "holdfast bench --jobs 100000 --processes 2 --json"],
    )
    parser.add_argument("--jobs", type=_jobs, default=20_000, metavar="N", help="how many to drain (20000)")
    parser.add_argument("--concurrency", type=int, metavar="N", help="jobs at once in each worker process (default 10)")
    parser.add_argument("--processes", type=_processes, default=1, metavar="N", help="worker processes (1)")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _jobs(text: str) -> int:
    if text.isdecimal() and JOBS_MIN <= int(text) <= JOBS_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from {JOBS_MIN} to {JOBS_MAX:,}")


def _processes(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 64:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 64")


def run(options: argparse.Namespace) -> int:
    said = {"database_url": options.database, "concurrency": options.concurrency}
    settings = load(overrides=said, extensions=None)
    if named_app(options) is not None:
        options.database = settings_of(options).url  # the workers get their app from us, and the database with it
        settings = msgspec.structs.replace(settings, database_url=options.database)
    others = with_engine(options, _other_work, may_be_first=True)
    if others and not options.yes:
        require_terminal("measure beside other work", f": {others}")
        if not confirmed(f"{others}; both would be slower. Measure all the same?"):
            return FAILED
    measured = asyncio.run(_measure(options, settings))
    if options.json:
        print_json(_view(measured, options, settings))
    else:
        _print(measured, options, settings)
    return 0


async def _other_work(engine: Engine) -> str:
    """What else the database is there for, in words; nothing if there is nothing."""
    from holdfast.cli.bench.app import NAME
    from holdfast.cli.top.collector import Collector

    watch = Collector(engine, "")
    frame = await watch.look()
    await watch.close()
    queues = [queue for queue in frame.queues if queue.queue != NAME]
    jobs = sum(queue.unfinished for queue in queues)
    workers = [worker for worker in frame.workers if worker.alive]
    said = [count(jobs, "unfinished job")] if jobs else []
    said += [f"{count(len(workers), 'worker')}, last heard of less than 90 s ago"] if workers else []
    return f"this database has other work: {' and '.join(said)}" if said else ""


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

    print_table(["figure", "reached", "by hand", "share", "what it means"], map(_row, measured.figures))
    crew = f"worker processes: {options.processes}, slots in each: {settings.concurrency}"
    said = [
        f"{count(options.jobs, 'job')} with 100 bytes of payload on {without_password(settings.url)}; {crew}",
        f"removed {count(measured.removed, 'job')} with their history",
        STAYS.format(name=NAME),
    ]
    if measured.stays:
        said.append(
            f"{count(measured.stays, 'job')} could not be removed: a worker that is gone holds them for a while"
        )
    print("", *said, sep="\n", file=sys.stderr)


def _row(figure: Figure) -> list[str]:
    return [
        figure.name.replace("_", " "),
        f"{figure.value:,.0f} {figure.unit}" if figure.unit != "ms" else f"{figure.value:.1f} ms",
        "" if figure.by_hand is None else f"{figure.by_hand:,.0f} {figure.unit}",
        "" if figure.share is None else f"{figure.share:.2f}",
        figure.meaning,
    ]
