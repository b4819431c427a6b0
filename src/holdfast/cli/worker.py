"""`holdfast worker`: runs an app's jobs in one or more processes, from the database or through a server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.app_option import required_app
from holdfast.cli.exit_codes import code_of_signal
from holdfast.cli.parser import command, names
from holdfast.cli.service import collect_garbage_seldom, configure_logging, exit_now, stop_on_signals
from holdfast.errors import Invalid, InvalidField, Unauthorized
from holdfast.observe.logs import quiet_transitions
from holdfast.observe.tracing import require_traces
from holdfast.settings import Settings, load
from holdfast.worker.processes.signal_mask import unblock_signals
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.processes.supervisor_protocol import NOW, READY, STATUS, STOP, StatusResponder

if TYPE_CHECKING:
    from holdfast.sdk.app import App
    from holdfast.worker.heartbeat.heartbeater import Heartbeater
    from holdfast.worker.metrics import WorkerCounters
    from holdfast.worker.runtime import Worker

log = logging.getLogger("holdfast.worker")

COLLECT_AFTER = 10_000  # objects allocated since the last collection; handlers may leave large ones in cycles
AFTER_GRACE_SECONDS = 15.0  # to cancel unfinished jobs, end the app's lifespan and close connections


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "worker",
        run,
        about="run the jobs of an app",
        more="It claims and runs jobs of the types that the app defines, from all queues or --queues. On Ctrl-C or "
        "SIGTERM running jobs may finish within the grace period (HOLDFAST_STOP_GRACE_SECONDS), the others are "
        "released; a second signal exits at once. A process that crashes is restarted, and its jobs are retried. With "
        "--server it needs no database: it uses the HTTP API with the key in HOLDFAST_WORKER_KEY.",
        examples=[
            "holdfast worker --app tasks:app",
            "holdfast worker --app tasks:app --queues mail,reports --processes 4",
            "holdfast worker --app tasks:app --server https://jobs.example.com",
        ],
        json=False,
    )
    add_arguments(parser)
    parser.add_argument("--server", metavar="URL", help="claim jobs from this server instead of a database")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="number of worker processes (1)")
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="N",
        help="serve /metrics, /livez and /readyz for all processes on this port (0: any free port)",
    )
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queues", type=names, metavar="A,B", help="claim from these queues only")
    parser.add_argument("--concurrency", type=int, metavar="N", help="concurrent jobs in each process (10)")
    parser.add_argument("--name", help="display name in lists of workers")
    parser.add_argument(
        "--capabilities",
        type=names,
        default=[],
        metavar="A,B",
        help="capabilities that jobs can require, such as gpu,ffmpeg",
    )


def run(options: argparse.Namespace) -> int:
    settings = load(overrides=_overrides(options), extensions=None)
    if options.processes < 1:
        raise InvalidField(f"--processes must be 1 or more, got {options.processes}", field="processes")
    configure_logging(settings)
    quiet_transitions()
    if options.server is not None:
        _check_remote(options, settings)
    if settings.traces:
        require_traces()  # once, before the processes start
    if not (options.app or settings.app):
        required_app(options)
    if not options.supervised:
        command_line = [sys.executable, "-m", "holdfast.cli", *sys.argv[1:], "--supervised"]
        grace = settings.stop_grace_seconds + AFTER_GRACE_SECONDS
        return asyncio.run(_supervise(command_line, options, grace))
    from holdfast.worker.processes.parent_death import die_with_parent

    line = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # subprocesses of handlers must not read from the supervisor
    die_with_parent(line.fileno())
    return asyncio.run(_work(app_of(options), options, line))


async def _supervise(command_line: list[str], options: argparse.Namespace, grace_seconds: float) -> int:
    supervisor = Supervisor(command_line, options.processes, grace_seconds=grace_seconds)
    async with contextlib.AsyncExitStack() as stack:
        if options.metrics_port is not None:
            from holdfast.assembly.worker_health import WorkerHealth  # imports a web server

            await stack.enter_async_context(WorkerHealth(supervisor).serving(options.metrics_port))
        code = await supervisor.run()
    return code_of_signal(signal.SIGINT) if supervisor.interrupted else code


def _check_remote(options: argparse.Namespace, settings: Settings) -> None:
    """Check the options once, before any process starts."""
    from holdfast.client.address import checked_address, checked_key

    if options.database is not None:
        raise Invalid("use --server or --database, not both", code="conflicting_input")
    if options.name is not None or options.capabilities:
        raise Invalid(
            "--name and --capabilities of a remote worker come from its registration", code="conflicting_input"
        )
    checked_address(options.server)
    if not settings.worker_key:
        raise Unauthorized(
            "a remote worker needs a key: set HOLDFAST_WORKER_KEY or HOLDFAST_WORKER_KEY_FILE; `holdfast workers "
            "register` creates one"
        )
    checked_key(settings.worker_key)


def app_of(options: argparse.Namespace) -> App:
    """Precedence: the command line, the app's own settings, the environment, the file."""
    configure_logging(load(overrides=_overrides(options), extensions=None))  # rejects invalid settings first
    app = required_app(options)
    app.settings = msgspec.structs.replace(app.settings, **_overrides(options))
    configure_logging(app.settings)
    return app


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    given = {"database_url": options.database, "concurrency": options.concurrency}
    return {name: value for name, value in given.items() if value is not None}


async def _work(app: App, options: argparse.Namespace, line: socket.socket) -> int:
    from holdfast.assembly.worker import spawn_heartbeater

    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def received() -> None:
        message = line.recv(64)
        if NOW in message:
            os._exit(1)
        if STOP in message:
            stop.set()
        if STATUS in message and answering is not None:
            answering.requested()

    async def leave() -> None:
        if answering is not None:
            await answering.send_last()
        exit_now()

    def ready() -> None:
        line.send(READY)
        collect_garbage_seldom(COLLECT_AFTER)

    figures = None if options.metrics_port is None else figures_of(app)
    answering = None if figures is None else StatusResponder(line, figures.status)
    line.setblocking(False)
    loop.add_reader(line, received)
    stop_on_signals(stop, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the supervisor forwards it
    unblock_signals()
    async with contextlib.AsyncExitStack() as stack:
        heartbeater = await spawn_heartbeater(options.server)
        stack.push_async_callback(heartbeater.close)
        if options.server is None:
            await stack.enter_async_context(app)
        else:
            stack.push_async_callback(app.close)  # connections that handlers opened
        worker = await work_until(
            *(app, options, stop, leave),
            on_ready=ready,
            server=options.server,
            figures=figures,
            heartbeater=heartbeater,
        )
        if answering is not None:
            await answering.send_last()
    return exit_code(worker)


def figures_of(app: App, *, extensions: bool = True) -> WorkerCounters:
    """`extensions`: include the metrics that they declare, unless a server in the same process exports them."""
    from holdfast.worker.metrics import WorkerCounters

    return WorkerCounters(sorted(app.handlers), app.clock, app.lifecycles, app.declarations() if extensions else None)


async def work_until(
    app: App,
    options: argparse.Namespace,
    stop: asyncio.Event,
    leave: Callable[[], Awaitable[None]],
    *,
    on_ready: Callable[[], object],
    server: str | None = None,
    figures: WorkerCounters | None = None,
    heartbeater: Heartbeater | None = None,
) -> Worker:
    from holdfast.assembly.worker import WorkerOptions, work

    worker_options = WorkerOptions(
        queues=options.queues,
        name=options.name,
        capabilities=dict.fromkeys(options.capabilities, True),
        reference=options.app,
        replaceable=options.supervised,
        server=server,
        metrics=figures,
        leave=leave,
        heartbeater=heartbeater,
    )

    def ready(worker: Worker) -> None:
        slots, types = worker.config.concurrency, ", ".join(worker.slots.types) or "none"
        where = ", ".join(options.queues) if options.queues else "all"
        log.info("ready: %d slots, queues: %s, job types: %s", slots, where, types)
        on_ready()

    return await work(app, worker_options, stop=stop, on_ready=ready)


def exit_code(worker: Worker) -> int:
    """The exit code. Handler threads that do not end must not block the exit."""
    if worker.slots.stuck:
        exit_now()
    return 0
