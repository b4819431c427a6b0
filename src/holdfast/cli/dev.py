"""`holdfast dev`: server, worker and maintenance in one process; runs the bundled example by default."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.cli.database import place_of
from holdfast.cli.parser import command
from holdfast.cli.sample_payload import sample
from holdfast.cli.serve import add_address_arguments, server_of
from holdfast.cli.service import exit_now, stop_on_signals
from holdfast.cli.worker import add_arguments, app_of, exit_code, figures_of, work_until
from holdfast.observe.logs import quiet_jobs
from holdfast.settings import load

if TYPE_CHECKING:
    from holdfast.sdk.app import App
    from holdfast.worker.metrics import WorkerCounters

EXAMPLE = "holdfast.example:app"
PORTS_TRIED = 20  # if the first port is in use, for example by another `holdfast dev`

HELLO = """
Holdfast runs the jobs of {app}, on {database}
HTTP API: {url}, documented at {url}/docs. {begin}

In another terminal, in this directory and with the same settings:

{create}  {holdfast} jobs list
  {holdfast} jobs show ID
  {holdfast} jobs why ID{with_app}
  {holdfast} top

{crash}

Ctrl-C stops it: running jobs may finish, the others are released. A second Ctrl-C exits at once.
"""
CREATE = """Create a job from this machine:

  curl {url}/jobs -H 'content-type: application/json' -d {intent}"""
CREATE_BY_COMMAND = "  {holdfast} jobs create {job_type} --payload {payload}{with_app}\n"
TRY = "Try it from this machine:\n"
WITHOUT_JOBS = """
Holdfast serves {app}, which defines no jobs, on {database}
HTTP API: {url}, documented at {url}/docs.

Ctrl-C stops it.
"""
CRASH = """To see crash recovery, kill this process and start it again; its jobs continue:

  kill -9 {pid}"""
EXAMPLE_CRASH = """To see crash recovery, create a long job, kill this process and start it again:

  {holdfast} jobs create count --payload '{{"to": 200}}'
  kill -9 {pid}

The job continues from its last checkpoint."""

EXAMPLE_JOBS_EXIST = (
    "the example jobs were created at an earlier start, and are not created again: `holdfast jobs list` shows them; to "
    "start over, use a new database: `holdfast dev --database sqlite:///new.db`"
)


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "dev",
        run,
        about="run a server, a worker and maintenance in one process, for development",
        more="Without settings it uses a SQLite file in .holdfast, and without --app the bundled example, "
        f"{EXAMPLE}, which creates one job of each type at its first start. It prints a line for each job that ends.",
        examples=[
            "holdfast dev",
            "holdfast dev --app tasks:app --quiet",
            "holdfast dev --app holdfast.workloads.images:app",
        ],
        json=False,
    )
    add_arguments(parser)
    add_address_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="do not print a line for each job that ends")
    parser.set_defaults(supervised=False)


def run(options: argparse.Namespace) -> int:
    options.app = options.app or load(extensions=None).app
    options.example = not options.app
    options.app = options.app or EXAMPLE
    app = app_of(options)
    quiet_jobs(failures=not options.quiet)  # the event printer shows them
    return asyncio.run(_run(app, options))


async def _run(app: App, options: argparse.Namespace) -> int:
    from holdfast.cli.event_printer import events_printed

    stop = asyncio.Event()
    stop_on_signals(stop, signal.SIGINT, signal.SIGTERM)
    async with app:
        engine = await app.engine()
        async with nullcontext() if options.quiet else events_printed(engine, stop):
            if options.example:
                from holdfast.example import first_jobs

                if all(job.existed for job in await first_jobs()):
                    print(EXAMPLE_JOBS_EXIST, flush=True)
            figures = figures_of(app, extensions=False)
            async with _served(app, options, figures) as url:
                worker = await work_until(
                    app,
                    options,
                    stop,
                    _exit,
                    on_ready=lambda: print(_hello(app, options, url), flush=True),
                    figures=figures,
                )
    print("stopped", flush=True)
    return exit_code(worker)


async def _exit() -> None:
    print("stopped", flush=True)
    exit_now()


@asynccontextmanager
async def _served(app: App, options: argparse.Namespace, figures: WorkerCounters) -> AsyncIterator[str]:
    """Run a server in this process; yields its URL. The worker does not use it."""
    from holdfast.server.http.server import served

    unknown = "accept" if options.example else "refuse"  # the example accepts any job type
    async with (
        server_of(app.settings, app, options.host, unknown_types=unknown) as server,
        served(server, host=options.host, port=options.port, ports=PORTS_TRIED) as url,
    ):
        server.worker_metrics = figures.text
        if options.port and (port := urlsplit(url).port) != options.port:
            print(f"port {options.port} is in use; listening on port {port} instead", flush=True)
        yield url


def _hello(app: App, options: argparse.Namespace, url: str) -> str:
    if not app.handlers:
        return WITHOUT_JOBS.format(app=options.app, url=url, database=place_of(app.settings.url))
    words = {
        "holdfast": _program(),
        "pid": os.getpid(),
        "url": url,
        "app": options.app,
        "database": place_of(app.settings.url),
        "with_app": f" --app {shlex.quote(options.app)}"
        if app.extensions
        else "",  # hooks and explanations need the app
    }
    begin, create = _first_steps(app, options, words)
    return HELLO.format(
        **words, begin=begin, create=create, crash=(EXAMPLE_CRASH if options.example else CRASH).format(**words)
    )


def _first_steps(app: App, options: argparse.Namespace, words: dict[str, Any]) -> tuple[str, str]:
    """What to type first: the examples of the extensions, or else a request and a command that create a job."""
    if examples := [each.example.format(**words) for each in app.extensions.values() if each.example]:
        return "\n".join([TRY, *(f"  {example}" for example in examples)]), ""
    job_type, payload = ("hello", '{"name": "you"}') if options.example else sample(list(app.handlers.values()))
    intent = shlex.quote(f'{{"jobType": {json.dumps(job_type)}, "payload": {payload}}}')
    by_command = CREATE_BY_COMMAND.format(**words, job_type=shlex.quote(job_type), payload=shlex.quote(payload))
    return CREATE.format(**words, intent=intent), by_command


def _program() -> str:
    """How to call this program from this directory."""
    called = Path(sys.argv[0])
    if called.name != "holdfast":
        return f"{shlex.quote(sys.executable)} -m holdfast.cli"
    found = shutil.which("holdfast")
    return "holdfast" if found and Path(found).samefile(called) else shlex.quote(str(called))
