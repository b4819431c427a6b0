"""`holdfast jobs events`: prints the history of one job, and follows it."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from holdfast.cli.database import machines_of, on_engine
from holdfast.cli.ids import job_id
from holdfast.cli.jobs.views import event_view
from holdfast.cli.output import on_terminal, print_json_line, time_text
from holdfast.cli.parser import command
from holdfast.lifecycle import Machine, State
from holdfast.model import Event
from holdfast.redaction import printable

if TYPE_CHECKING:
    from holdfast.engine import Engine

POLL_SECONDS = 0.3
WIDTHS = (3, 14, 8, 20, 2)  # on a terminal; of 80 columns 21 remain for the details
INDENT = 5  # indentation of details that do not fit on the line


def add_to(verbs: Any) -> None:
    parser = command(
        verbs,
        "events",
        events,
        about="print the history of a job, one line per event",
        more="With --json each line is an object.",
        examples=["holdfast jobs events 01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f --follow"],
    )
    parser.add_argument("job", metavar="ID", help="job id, or a prefix of it")
    parser.add_argument("--follow", action="store_true", help="keep printing new events until the job is finished")


@on_engine
async def events(engine: Engine, options: argparse.Namespace) -> None:
    job = await engine.reads.get(await job_id(engine, options.job))
    machine = (await machines_of(engine, [job]))[job.id]
    async for event in _events(engine, job.id, follow=options.follow):
        if options.json:
            print_json_line(event_view(event, machine))
        else:
            print(_line(event, machine), flush=options.follow)


async def _events(engine: Engine, job_id: str, *, follow: bool) -> AsyncIterator[Event]:
    seq, finished = 0, False
    while True:
        found = await engine.reads.history(job_id, after=seq)
        for event in found:
            seq = event.seq
            yield event
        if not found and (finished or not follow):
            return
        if not found:
            job = await engine.reads.get(job_id)
            finished = job.final  # then read once more: the last event was committed with it
            await engine.clock.sleep(0 if finished else POLL_SECONDS)


def _line(event: Event, machine: Machine) -> str:
    cells = [f"{event.seq}", time_text(event.at), event.verb, _transition(event, machine), f"attempt {event.attempt}"]
    if not on_terminal():
        return "\t".join(map(printable, [*cells, event.actor, _details(event, event.worker_id)]))
    cells[1], cells[4] = cells[1][len("2026-") :], f"#{event.attempt}"
    line = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    details = printable(_details(event, event.worker_id and event.worker_id[:8]) or event.actor)
    width = get_terminal_size().columns
    if len(line) + 2 + len(details) <= width:
        return f"{printable(line)}  {details}"
    return "\n".join([printable(line), *(" " * INDENT + part for part in wrap(details, max(20, width - INDENT)))])


def _transition(event: Event, machine: Machine) -> str:
    """With the state names of its lifecycle."""
    words = [machine.words[State(state)] for state in (event.from_state, event.to_state) if state]
    return " -> ".join(words)


def _details(event: Event, worker_id: str | None) -> str:
    progress = f"{event.percent:.0f} %" if event.percent is not None else None
    worker = f"worker {worker_id}" if worker_id else None
    return ", ".join(filter(None, (event.reason, event.step, progress, worker)))
