"""`holdfast jobs cancel` and `redrive`: one job, some, or all that a filter finds."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.cli.database import with_engine
from holdfast.cli.exits import FAILED, code_of
from holdfast.cli.jobs.filters import add_filters, any_given, filter_of
from holdfast.cli.jobs.verbs import Cancel, Outcome, Redrive, Verb, carry_out
from holdfast.cli.output import count, print_json, printable
from holdfast.cli.parser import Run, command
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.engine import Engine, Filter

PAGE = 200
DID = {
    "canceled": "canceled",
    "cancel_requested": "asked to stop",
    "redriven": "redriven",
    "already_redriven": "left alone: redriven before",
    "refused": "refused",
}
WOULD = {what: f"would be {said}" for what, said in DID.items()}


def add_to(verbs: Any) -> None:
    cancel_them = _add(
        verbs,
        "cancel",
        cancel,
        about="cancel jobs: at once where nobody runs them, else by asking their workers to stop",
        more="By ids, or all that a filter finds; without --state, all that are not finished.",
        examples=["holdfast jobs cancel ID", "holdfast jobs cancel --type crawl --since 1h --dry-run"],
    )
    cancel_them.add_argument("--reason", default="canceled", help="what its history says (canceled)")
    redrive_them = _add(
        verbs,
        "redrive",
        redrive,
        about="do finished jobs again, as new jobs linked to the old ones",
        more="By ids, or all that a filter finds; without --state, those that are dead. A job is redriven once.",
        examples=["holdfast jobs redrive ID", "holdfast jobs redrive --error-code E_TIMEOUT --rate 50 --yes"],
    )
    redrive_them.add_argument("--rate", type=_rate, metavar="N", help="at most so many a second")
    redrive_them.add_argument("--again", action="store_true", help="also those that were redriven already")


def _add(verbs: Any, name: str, run: Run, **words: Any) -> argparse.ArgumentParser:
    parser = command(verbs, name, run, **words)
    parser.add_argument("jobs", nargs="*", metavar="ID", help="the ids of jobs")
    add_filters(parser)
    parser.add_argument("--limit", type=_positive, metavar="N", help="at most so many, newest first")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(rate=None)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def _rate(text: str) -> float:
    try:
        if 0.01 <= float(text) <= 1_000_000:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs a second; write 50, or 0.5")


def cancel(options: argparse.Namespace) -> int:
    return _run(options, Cancel(options))


def redrive(options: argparse.Namespace) -> int:
    return _run(options, Redrive(options))


def _run(options: argparse.Namespace, verb: Verb) -> int:
    if bool(options.jobs) == any_given(options):
        raise Invalid(f"name jobs or give a filter, and not both; `holdfast jobs {verb.name} --help` lists them")
    if not options.jobs and not options.yes and not options.dry_run and not sys.stdin.isatty():
        raise Invalid(
            f"--yes is needed to {verb.name} by filter where nobody can be asked; --dry-run shows what would be"
        )

    async def work(engine: Engine) -> int:
        wanted = None if options.jobs else await filter_of(engine, options, verb.states)
        total = len(options.jobs) if wanted is None else await _count(engine, wanted, options.limit)
        if wanted is not None and not _agreed(options, verb, total):
            print("nothing was done", file=sys.stderr)
            return FAILED
        return await _each(engine, options, verb, wanted, total)

    return with_engine(options, work)


async def _count(engine: Engine, wanted: Filter, limit: int | None) -> int:
    found = sum(jobs for *_, jobs in await engine.counts(wanted))
    return min(found, limit or found)


def _agreed(options: argparse.Namespace, verb: Verb, total: int) -> bool:
    if options.yes or options.dry_run or total == 0:
        return True
    print(f"{verb.name} {count(total, 'job')}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _each(engine: Engine, options: argparse.Namespace, verb: Verb, wanted: Filter | None, total: int) -> int:
    outcomes: list[Outcome] = []
    clock = engine.rules.clock
    begun = clock.monotonic()
    try:
        with _progress(verb.name, total) as advance:
            async for job_ids in _pages(engine, options, wanted):
                outcomes += await carry_out(engine, verb, job_ids, rehearse=options.dry_run)
                advance(len(job_ids))
                if options.rate and len(outcomes) < total:
                    await clock.sleep(max(0, begun + len(outcomes) / options.rate - clock.monotonic()))
    finally:  # also after Ctrl-C or a lost database: what was done is done
        _report(options, outcomes)
    return next((code_of(outcome.refusal) for outcome in outcomes if outcome.refusal), 0)


async def _pages(engine: Engine, options: argparse.Namespace, wanted: Filter | None) -> AsyncIterator[list[str]]:
    """Ids in ascending order, as whoever writes many rows locks them."""
    size = min(PAGE, max(1, int(options.rate or PAGE)))
    if wanted is None:
        ids = sorted(set(options.jobs))
        for first in range(0, len(ids), size):
            yield ids[first : first + size]
        return
    left, cursor = options.limit or sys.maxsize, None
    while left > 0:
        page = await engine.page(wanted, cursor=cursor, limit=min(size, left))
        yield sorted(job.id for job in page.jobs)
        left, cursor = left - len(page.jobs), page.next
        if cursor is None:
            return


@contextmanager
def _progress(verb: str, total: int) -> Iterator[Callable[[int], None]]:
    if total <= PAGE or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda done: progress.advance(task, done)


def _report(options: argparse.Namespace, outcomes: list[Outcome]) -> None:
    counts = Counter(outcome.what for outcome in outcomes)
    if options.json:
        print_json({"dryRun": options.dry_run, "counts": counts, "jobs": [outcome.view() for outcome in outcomes]})
        return
    if options.jobs or options.dry_run:
        for outcome in outcomes:
            print(printable(f"{outcome}", keep="\t"))
    if not options.jobs:
        _print_counts(counts, outcomes, WOULD if options.dry_run else DID)


def _print_counts(counts: Counter[str], outcomes: list[Outcome], words: dict[str, str]) -> None:
    if not outcomes:
        print("no job is like that")
    for what, number in counts.items():
        print(f"{count(number, 'job')} {words[what]}")
    reasons = {outcome.refusal.code: outcome.refusal.message for outcome in outcomes if outcome.refusal}
    for code, message in reasons.items():
        number = sum(outcome.refusal is not None and outcome.refusal.code == code for outcome in outcomes)
        print(printable(f"  {number} x {code}, such as: {message}"))
