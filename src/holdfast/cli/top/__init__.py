"""`holdfast top`: a live view of queues, limits, workers, running jobs and finished jobs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli import times
from holdfast.cli.database import on_engine, settings_of
from holdfast.cli.output import on_terminal, print_json
from holdfast.cli.parser import command
from holdfast.redaction import without_password

if TYPE_CHECKING:
    from holdfast.engine import Engine

PIPE_WIDTH = 100_000  # in a pipe nothing is truncated
ONCE_HEIGHT = 60  # lines


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "top",
        run,
        about="show a live view of queues, workers and jobs",
        more="Waiting jobs are ready to run; delayed and retrying jobs wait for their run time. On a terminal it "
        "refreshes until you press q or Ctrl-C. Its load on the database is small for any number of jobs.",
        examples=["holdfast top", "holdfast top --interval 5", "holdfast top --json"],
    )
    parser.add_argument(
        "--interval", type=_interval, default=1.0, metavar="SECONDS", help="refresh interval, 0.1 to 60 (1)"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print once, with the rates of one interval; the default without a terminal and with --json",
    )


def _interval(text: str) -> float:
    if 0.1 <= (wanted := times.seconds(text)) <= 60:
        return wanted
    raise argparse.ArgumentTypeError(f"{text!r} is not between 0.1 and 60 seconds")


@on_engine
async def run(engine: Engine, options: argparse.Namespace) -> None:
    from rich.console import Console

    from holdfast.cli.top.collector import Collector
    from holdfast.cli.top.render import render
    from holdfast.cli.top.screen import View

    collector = Collector(engine, without_password(settings_of(options).url))
    console = Console(highlight=False, width=None if on_terminal() else PIPE_WIDTH)
    try:
        if on_terminal() and not (options.once or options.json):
            await View(collector, console, engine.clock, every=options.interval).run()
            return
        await collector.collect()
        await engine.clock.sleep(options.interval)
        snapshot = await collector.collect()  # the second one has rates
        if options.json:
            print_json(snapshot)
        else:
            console.print(render(snapshot, width=console.width, height=ONCE_HEIGHT))
    finally:
        await collector.close()
