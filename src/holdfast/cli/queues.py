"""`holdfast queues`: what waits where, and which queues are held back."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli.database import time_of, with_engine
from holdfast.cli.output import Cell, Styled, age_text, print_json, print_table, time_text
from holdfast.cli.parser import command, group
from holdfast.lifecycle import State

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.store import Row, Tx


def add_to(commands: Any) -> None:
    verbs = group(commands, "queues", about="list, pause and resume queues")
    command(
        verbs,
        "list",
        list_all,
        about="count the jobs of each queue by state, and say which queues are paused",
        examples=["holdfast queues list", "holdfast queues list --json"],
    )
    pause_it = command(
        verbs,
        "pause",
        pause,
        about="stop claims from a queue; jobs that run go on, and new ones may be created",
        examples=["holdfast queues pause mail --by alice"],
    )
    pause_it.add_argument("queue", metavar="QUEUE", help="the name of the queue")
    pause_it.add_argument("--by", metavar="NAME", help="who pauses it; shown to whoever asks why a job does not run")
    resume_it = command(
        verbs,
        "resume",
        resume,
        about="let a paused queue be claimed from again",
        examples=["holdfast queues resume mail"],
    )
    resume_it.add_argument("queue", metavar="QUEUE", help="the name of the queue")


def list_all(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        queues = await _queues(engine)
        if options.json:
            print_json({"queues": queues})
        else:
            _print(queues, await time_of(engine))
        return 0

    return with_engine(options, work)


async def _queues(engine: Engine) -> list[dict[str, Any]]:
    from holdfast.store import q

    async def work(tx: Tx) -> tuple[list[Row], list[Row]]:
        return await tx.all(q.queue_counts), await tx.all(q.paused_queues)

    counted, paused = await engine.store.read(work)
    stopped = {row["name"]: row for row in paused}
    names = sorted({row["queue"] for row in counted} | stopped.keys())
    return [_queue(name, [row for row in counted if row["queue"] == name], stopped.get(name)) for name in names]


def _queue(name: str, counted: list[Row], stopped: Row | None) -> dict[str, Any]:
    numbers = {row["state"]: row["jobs"] for row in counted}
    waiting: list[datetime] = [row["oldest_at"] for row in counted if row["oldest_at"] is not None]
    return {
        "queue": name,
        "jobs": {state.value: numbers.get(state.value, 0) for state in State},
        "oldestWaitingAt": min(waiting, default=None),
        "pausedAt": stopped["paused_at"] if stopped else None,
        "pausedBy": stopped["paused_by"] if stopped else None,
    }


def _print(queues: list[dict[str, Any]], now: datetime) -> None:
    rows: list[list[Cell]] = [
        [
            queue["queue"],
            *(f"{number}" for number in queue["jobs"].values()),
            age_text(now, queue["oldestWaitingAt"]),
            _open_or_paused(queue),
        ]
        for queue in queues
    ]
    print_table(["queue", *(state.value for state in State), "oldest waits", "claims"], rows)


def _open_or_paused(queue: dict[str, Any]) -> Cell:
    if queue["pausedAt"] is None:
        return "open"
    by = f" by {queue['pausedBy']}" if queue["pausedBy"] else ""
    return Styled(f"paused {time_text(queue['pausedAt'])}{by}", "yellow")


def pause(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        await engine.pause(options.queue, by=options.by)
        _say(options, paused=True, text=f"queue {options.queue!r} is paused; nothing more is claimed from it")
        return 0

    return with_engine(options, work)


def resume(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        known = await engine.resume(options.queue)
        _say(options, paused=False, text=f"queue {options.queue!r} is open" + ("" if known else "; it was not paused"))
        return 0

    return with_engine(options, work)


def _say(options: argparse.Namespace, *, paused: bool, text: str) -> None:
    if options.json:
        print_json({"queue": options.queue, "paused": paused})
    else:
        print(text)
