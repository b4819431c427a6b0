"""`holdfast jobs list`: lists jobs by filter, newest first."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli.database import machines_of, on_engine
from holdfast.cli.jobs.filters import add_filters, filter_of, status_meant
from holdfast.cli.jobs.views import job_view, state_cell
from holdfast.cli.output import Cell, Styled, age_text, on_terminal, print_json, print_table, time_text
from holdfast.cli.parser import command
from holdfast.lifecycle import Machine
from holdfast.model import Job

if TYPE_CHECKING:
    from holdfast.engine import Engine

TITLES: list[Cell] = [
    *("job", "type", "queue", "state", Styled("attempt", short="try"), Styled("progress", short="done")),
    *(Styled("created (UTC)", short="age"), "reason"),
]


def add_to(verbs: Any) -> None:
    parser = command(
        verbs,
        "list",
        list_jobs,
        about="list jobs, newest first",
        more="A job must match all filters.",
        examples=["holdfast jobs list --state dead --since 1h", "holdfast jobs list --type send_email --json"],
    )
    add_filters(parser)
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="page size (50, at most 500)")
    parser.add_argument("--cursor", metavar="CURSOR", help="continue after an earlier page")


@on_engine
async def list_jobs(engine: Engine, options: argparse.Namespace) -> None:
    page = await engine.reads.page(await filter_of(engine, options), cursor=options.cursor, limit=options.limit)
    machines, now = await machines_of(engine, page.jobs), await engine.reads.now()
    if options.json:
        jobs = [job_view(job, machines[job.id], now) for job in page.jobs]
        print_json({"jobs": jobs, "nextCursor": page.next})
        return
    print_table(TITLES, (_row(job, machines[job.id], now) for job in page.jobs), droppable=["progress"])
    if not page.jobs and (status := status_meant(options)):
        print(f"no jobs in that state; to filter by status, use --status {status}", file=sys.stderr)
    elif not page.jobs and on_terminal():
        print("no more jobs" if options.cursor else "no jobs", file=sys.stderr)
    if page.next:
        print(f"more results: add --cursor {page.next}", file=sys.stderr)


def _row(job: Job, machine: Machine, now: datetime) -> list[Cell]:
    return [
        job.id,
        job.type,
        job.queue,
        state_cell(job, machine),
        f"{job.attempt}/{job.max_attempts}",
        "" if job.percent is None else f"{job.percent:.0f} %",
        Styled(time_text(job.created_at), short=age_text(now, job.created_at)),
        job.reason or "",
    ]
