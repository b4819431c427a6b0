"""`holdfast top`: what waits, who works, what runs and what ended, as it happens."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli import times
from holdfast.cli.database import settings_of, with_engine
from holdfast.cli.output import on_terminal, print_json
from holdfast.cli.parser import command
from holdfast.redaction import without_password

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.cli.top.collector import Collector
    from holdfast.cli.top.snapshot import TopSnapshot
    from holdfast.engine import Engine

PIPE_WIDTH = 100_000  # behind a pipe nothing is cut
SHOWN_ONCE = 60  # lines


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "top",
        run,
        about="watch queues, workers and jobs",
        more="Waiting are the jobs that could run now; delayed and retrying ones wait for their time. On a terminal it "
        "goes on until you press q or Ctrl-C. It costs the database little, however many jobs there are.",
        examples=["holdfast top", "holdfast top --interval 5", "holdfast top --json"],
    )
    parser.add_argument(
        "--interval", type=_interval, default=1.0, metavar="SECONDS", help="between two looks, 0.1 to 60 (1)"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print one picture, with the rates of one interval; so it is where there is no terminal, and with --json",
    )


def _interval(text: str) -> float:
    if 0.1 <= (wanted := times.seconds(text)) <= 60:
        return wanted
    raise argparse.ArgumentTypeError(f"{text!r} is not between 0.1 and 60 seconds")


def run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from holdfast.cli.top.collector import Collector

    async def work(engine: Engine) -> int:
        watch = Collector(engine, without_password(settings_of(options).url))
        console = Console(highlight=False, width=None if on_terminal() else PIPE_WIDTH)
        try:
            if options.once or options.json or not on_terminal():
                _print(await _one(watch, engine, options.interval), console, as_json=options.json)
            else:
                await _live(watch, engine, console, options.interval)
        finally:
            await watch.close()
        return 0

    return with_engine(options, work)


async def _one(watch: Collector, engine: Engine, interval: float) -> TopSnapshot:
    """The second of two looks: it knows what came and went between them."""
    await watch.look()
    await engine.clock.sleep(interval)
    return await watch.look()


def _print(frame: TopSnapshot, console: Console, *, as_json: bool) -> None:
    if as_json:
        print_json(frame)
        return
    from holdfast.cli.top.render import picture

    console.print(picture(frame, width=console.width, height=SHOWN_ONCE))


async def _live(watch: Collector, engine: Engine, console: Console, interval: float) -> None:
    from holdfast.cli.top.screen import View

    await View(watch, console, engine.clock, every=interval).run()
