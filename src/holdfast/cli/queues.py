"""`holdfast queues`: counts the jobs of each queue, pauses and resumes queues."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.cli.database import on_engine
from holdfast.cli.output import Cell, Styled, age_text, camel_keys, print_json, print_result, print_table, time_text
from holdfast.cli.parser import command, group, list_command
from holdfast.lifecycle import State
from holdfast.redaction import printable

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.engine.admin.queues import Queue


def add_to(commands: Any) -> None:
    verbs = group(commands, "queues", about="list, pause and resume queues")
    list_command(
        verbs, "queues", list_all, about="list queues with their job counts by state, and whether they are paused"
    )
    pause_it = command(
        verbs,
        "pause",
        pause,
        about="pause a queue: no more claims; running jobs continue, and jobs can still be created",
        examples=["holdfast queues pause mail --by alice"],
    )
    pause_it.add_argument("queue", metavar="QUEUE", help="name of the queue")
    pause_it.add_argument("--by", metavar="NAME", help="who paused it; shown by `holdfast jobs why`")
    resume_it = command(
        verbs, "resume", resume, about="resume a paused queue", examples=["holdfast queues resume mail"]
    )
    resume_it.add_argument("queue", metavar="QUEUE", help="name of the queue")


@on_engine
async def list_all(engine: Engine, options: argparse.Namespace) -> None:
    queues = await engine.queues.all()
    if options.json:
        print_json({"queues": [_view(queue) for queue in queues]})
    else:
        _print(queues, await engine.reads.now())


def _view(queue: Queue) -> dict[str, Any]:
    fields = camel_keys(asdict(queue))
    return {"queue": fields.pop("name"), **fields}


def _print(queues: list[Queue], now: datetime) -> None:
    rows: list[list[Cell]] = [
        [
            queue.name if queue.tenant == "default" else f"{queue.name} of {queue.tenant}",
            *(f"{number}" for number in queue.jobs.values()),
            age_text(now, queue.oldest_waiting_at),
            _open_or_paused(queue),
        ]
        for queue in queues
    ]
    titles: list[Cell] = ["queue", *(state.value for state in State), Styled("oldest waits", short="oldest"), "claims"]
    print_table(titles, rows, droppable=[State.CREATED, State.REJECTED, State.CANCELED])


def _open_or_paused(queue: Queue) -> Cell:
    if queue.paused_at is None:
        return "open"
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    return Styled(f"paused {time_text(queue.paused_at)}{by}", "yellow")


@on_engine
async def pause(engine: Engine, options: argparse.Namespace) -> None:
    await engine.queues.pause(options.queue, by=options.by)
    print_result(options, {"queue": options.queue, "paused": True}, f"queue {options.queue!r} is paused")
    used = sorted({queue.name for queue in await engine.queues.all() if any(queue.jobs.values())})
    if options.queue not in used:
        known = f"queues with jobs: {', '.join(used)}" if used else "there are no jobs"
        print(printable(f"note: no job is in queue {options.queue!r}; {known}"), file=sys.stderr)


@on_engine
async def resume(engine: Engine, options: argparse.Namespace) -> None:
    known = await engine.queues.resume(options.queue)
    text = f"queue {options.queue!r} is open" + ("" if known else "; it was not paused")
    print_result(options, {"queue": options.queue, "paused": False}, text)
