"""`holdfast dev`: everything in one process, for trying things out; without an app of yours, the bundled example."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.apps import add_app_argument, load_app
from holdfast.cli.config import without_password
from holdfast.cli.parser import command
from holdfast.cli.worker import add_arguments, ended, log_to_terminal, settings_of, stop_on_signals, work_until

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.cli.narrator import Narrator

EXAMPLE = "holdfast.example:app"

HELLO = """
Holdfast runs the jobs of {app}, on {database}
In another terminal, in this directory and with the same settings:

  {holdfast} jobs create {create}
  {holdfast} top                  # queues, workers and running jobs, live
  {holdfast} jobs list
  {holdfast} jobs show ID         # and: jobs why ID, jobs events ID --follow, jobs cancel ID

{crash}

Ctrl-C stops it: running jobs may finish, the rest is given back. A second one ends it at once.
"""
CRASH = "To see a crash: kill -9 {pid}, and start it again. What it was doing goes on."
CRASH_EXAMPLE = """To see a job survive a crash, create a long one and kill this process; then start it again:

  {holdfast} jobs create count --payload '{{"to": 200}}'
  kill -9 {pid}                   # and in this terminal: {holdfast} dev"""


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "dev",
        run,
        about="try things out: a worker and maintenance in one process",
        more="Without settings it works on a SQLite file in .holdfast, and without --app on a bundled example, "
        f"{EXAMPLE}, which hands in one job of each kind at its first start. As jobs end it prints a line for each.",
        examples=["holdfast dev", "holdfast dev --app tasks:app --quiet"],
        json=False,
    )
    add_app_argument(parser, required=False)
    add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="print no line for each job that ends")


def run(options: argparse.Namespace) -> int:
    log_to_terminal()
    settings = settings_of(options)
    options.example = options.app is None
    options.app = options.app or EXAMPLE
    app = load_app(options.app)
    app.settings = settings
    return asyncio.run(_run(app, options))


async def _run(app: App, options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with app:
        narrator = None if options.quiet else await _narrator(app)
        if options.example:
            from holdfast.example import first_jobs

            await first_jobs()
        telling = asyncio.create_task(_tell(narrator, stop))
        worker = await work_until(app, options, stop, on_ready=lambda: _greet(app, options))
        stop.set()
        await telling
    print("stopped", flush=True)
    return ended(worker)


async def _narrator(app: App) -> Narrator:
    from holdfast.cli.narrator import Narrator

    engine = await app.engine()
    return Narrator(engine, await engine.feed_end())
