"""`holdfast serve`: runs the HTTP server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.app_option import named_app
from holdfast.cli.database import settings_of
from holdfast.cli.parser import command
from holdfast.cli.service import collect_garbage_seldom, configure_logging, stop_on_signals
from holdfast.redaction import know
from holdfast.settings import Settings, load

if TYPE_CHECKING:
    from holdfast.sdk.app import App
    from holdfast.server.state import ServerState

COLLECT_AFTER = 20_000  # objects allocated since the last collection

log = logging.getLogger("holdfast.serve")


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "serve",
        run,
        about="run the HTTP server: clients create jobs, remote workers claim them",
        more="It runs no jobs itself. With --app it declares the app's job types, so that new jobs get their queue, "
        "lifecycle and policy. Any number of servers can share one database. On an address other than loopback it "
        "requires keys and HOLDFAST_ADMIN_SECRET; put a proxy in front of it for TLS.",
        examples=["holdfast serve", "holdfast serve --app tasks:app --port 8000"],
        json=False,
    )
    add_address_arguments(parser)


def add_address_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (8080); 0: any free port")


def run(options: argparse.Namespace) -> int:
    import uvloop

    configure_logging(load(overrides={"database_url": options.database}, extensions=None))
    app, settings = named_app(options), settings_of(options)
    configure_logging(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, app, options))


async def _run(settings: Settings, app: App | None, options: argparse.Namespace) -> int:
    from holdfast.observe.tracing import exported
    from holdfast.server.http.server import served

    stop = asyncio.Event()
    stop_on_signals(stop, signal.SIGINT, signal.SIGTERM, waits_for="active requests")
    async with (
        exported("holdfast-server", wanted=settings.traces),
        server_of(settings, app, options.host) as server,
    ):
        collect_garbage_seldom(COLLECT_AFTER)
        async with served(server, host=options.host, port=options.port) as url:
            log.info("ready: %s, API documentation at %s/docs", url, url)
            await stop.wait()
    return 0


@asynccontextmanager
async def server_of(
    settings: Settings, app: App | None, host: str, *, unknown_types: str = "refuse"
) -> AsyncIterator[ServerState]:
    """Open the server state, after checking that it is secure for this address.

    `unknown_types`: how to treat unknown job types if the settings say `auto` and there is an app.
    """
    from holdfast.assembly.engine import AppParts
    from holdfast.assembly.server import open_server
    from holdfast.assembly.startup_log import log_startup_warnings
    from holdfast.engine.declare import refuse_severe
    from holdfast.model.loopback import is_loopback
    from holdfast.server.startup_checks import dev_secret, refuse_insecure

    local = is_loopback(host)
    if local and not settings.admin_secret:
        settings = msgspec.structs.replace(settings, admin_secret=dev_secret(settings.data_dir))
        know([settings.admin_secret])
    if settings.unknown_job_types == "auto":
        wanted = "accept" if app is None else unknown_types
        settings = msgspec.structs.replace(settings, unknown_job_types=wanted)
    async with open_server(settings, AppParts() if app is None else app.parts(), allow_local=local) as server:
        await refuse_insecure(server.engine, settings, host)
        await log_startup_warnings(server.engine, server.retention)
        if not local:
            log.warning("%s serves plain HTTP: put a proxy with TLS in front of it", host)
        if app is not None:
            found = await server.engine.job_types.declare(
                *(each.job_type for each in app.handlers.values()), app=app.name
            )
            refuse_severe(found)
        yield server
