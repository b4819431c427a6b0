"""`holdfast jobs cancel`, `redrive` and `wake`: by ids, or all jobs that match a filter."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from holdfast.cli.confirm import confirmed, require_terminal
from holdfast.cli.database import with_engine
from holdfast.cli.exit_codes import FAILED
from holdfast.cli.ids import job_ids
from holdfast.cli.jobs.filters import add_filters, any_given, filter_of
from holdfast.cli.jobs.summary import BulkSummary, progress_bar
from holdfast.cli.output import count
from holdfast.cli.parser import command, whole_number
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.engine import Engine, Filter
    from holdfast.engine.admin.bulk import BulkVerb

PAGE = 200


def add_to(verbs: Any) -> None:
    cancel_them = _add(
        verbs,
        "cancel",
        about="cancel jobs: waiting ones at once, running ones by asking their workers to stop",
        more="By ids, or all jobs that match a filter; without --state, all unfinished jobs.",
        examples=["holdfast jobs cancel ID", "holdfast jobs cancel --type crawl --since 1h --dry-run"],
    )
    cancel_them.add_argument("--reason", default="canceled", help="reason in the job's history (canceled)")
    _add(
        verbs,
        "wake",
        about="run jobs now that are delayed, snoozed, or wait for a retry or for their children",
        more="By ids, or all jobs that match a filter; without --state, queued and retrying jobs.",
        examples=["holdfast jobs wake ID", "holdfast jobs wake --type mail --yes"],
    )
    redrive_them = _add(
        verbs,
        "redrive",
        about="run finished jobs again, as new jobs that link to the old ones",
        more="By ids, or all jobs that match a filter; without --state, dead jobs. A job is redriven once.",
        examples=["holdfast jobs redrive ID", "holdfast jobs redrive --error-code timeout --rate 50 --yes"],
    )
    redrive_them.add_argument("--rate", type=_rate, metavar="N", help="rate limit in jobs per second")
    redrive_them.add_argument("--again", action="store_true", help="include jobs that were redriven already")


def _add(verbs: Any, name: str, **words: Any) -> argparse.ArgumentParser:
    parser = command(verbs, name, run, **words)
    parser.add_argument("jobs", nargs="*", metavar="ID", help="job ids, or prefixes of them")
    add_filters(parser)
    parser.add_argument("--limit", type=whole_number(1), metavar="N", help="at most N jobs, newest first")
    parser.add_argument("--dry-run", action="store_true", help="show what would happen, without changing anything")
    parser.add_argument("--yes", action="store_true", help="skip the confirmation")
    parser.set_defaults(verb=name, rate=None)
    return parser


def _rate(text: str) -> float:
    try:
        if 0.01 <= float(text) <= 1_000_000:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a rate in jobs per second; write 50, or 0.5")


def _verb(options: argparse.Namespace) -> BulkVerb:
    from holdfast.engine.admin.bulk import BulkCancel, BulkRedrive, BulkWake

    match options.verb:
        case "cancel":
            return BulkCancel(options.reason)
        case "redrive":
            return BulkRedrive(again=options.again)
    return BulkWake()


def run(options: argparse.Namespace) -> int:
    verb = _verb(options)
    if options.jobs and any_given(options):
        raise Invalid("use job ids or a filter, not both")
    if not options.jobs and not any_given(options):
        raise Invalid(f"no jobs given: use ids or a filter such as --type; see `holdfast jobs {verb.name} --help`")
    confirms = not (options.jobs or options.yes or options.dry_run)
    if confirms:
        require_terminal(f"{verb.name} by filter", "; --dry-run shows what would happen")
    found = with_engine(options, lambda engine: _find(engine, options, verb))
    if confirms and found.total and not confirmed(f"{verb.name} {count(found.total, 'job')}?"):
        return FAILED
    return with_engine(options, lambda engine: _each(engine, options, verb, found))


class _Found(NamedTuple):
    """The jobs that the filter matches now: jobs created after the confirmation are not included."""

    wanted: Filter | None
    total: int


async def _find(engine: Engine, options: argparse.Namespace, verb: BulkVerb) -> _Found:
    if options.jobs:
        options.jobs = await job_ids(engine, options.jobs)
        return _Found(None, len(set(options.jobs)))
    wanted = await filter_of(engine, options, verb.states)
    if wanted.created_before is None:
        wanted = replace(wanted, created_before=await engine.reads.now())
    number = sum(jobs for *_, jobs in await engine.reads.counts(wanted))
    return _Found(wanted, min(number, options.limit or number))


async def _each(engine: Engine, options: argparse.Namespace, verb: BulkVerb, found: _Found) -> int:
    from holdfast.engine.admin.bulk import carry_out

    summary, clock = BulkSummary(options), engine.clock
    begun = clock.monotonic()
    try:
        with progress_bar(verb.name, found.total, shown=found.total > PAGE and not summary.each) as advance:
            async for job_ids in _pages(engine, options, found.wanted):
                summary.add(await carry_out(engine, verb, job_ids, rehearse=options.dry_run))
                advance(summary.done)
                if options.rate and summary.done < found.total:
                    await clock.sleep(max(0, begun + summary.done / options.rate - clock.monotonic()))
    finally:  # also after Ctrl-C or a lost connection: the changes so far are committed
        summary.print()
    return summary.exit_code


async def _pages(engine: Engine, options: argparse.Namespace, wanted: Filter | None) -> AsyncIterator[list[str]]:
    """Ids in ascending order, the order in which rows are locked."""
    size = min(PAGE, max(1, int(options.rate or PAGE)))
    if wanted is None:
        ids = sorted(set(options.jobs))
        for first in range(0, len(ids), size):
            yield ids[first : first + size]
        return
    left, cursor = options.limit or sys.maxsize, None
    while left > 0:
        page = await engine.reads.page(wanted, cursor=cursor, limit=min(size, left))
        yield sorted(job.id for job in page.jobs)
        left, cursor = left - len(page.jobs), page.next
        if cursor is None:
            return
