"""`holdfast serve`: answer over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.app_option import named_app
from holdfast.cli.database import settings_of
from holdfast.cli.parser import command
from holdfast.cli.service import log_as, stop_on_signals
from holdfast.redaction import know
from holdfast.settings import Settings, load

if TYPE_CHECKING:
    from holdfast.sdk.app import App
    from holdfast.server.state import ServerState

COLLECT_AFTER = 20_000  # objects more than were there the last time

log = logging.getLogger("holdfast.serve")


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "serve",
        run,
        about="answer over HTTP: clients hand in jobs, workers anywhere do them",
        more="It runs no jobs itself. With --app it declares what the app says about its job types, so that jobs "
        "handed in get their queue, lifecycle and policy. Any number of servers may stand before one database. On any "
        "address but this machine's own it wants keys and HOLDFAST_ADMIN_SECRET, and a proxy before it for TLS.",
        examples=["holdfast serve", "holdfast serve --app tasks:app --port 8000"],
        json=False,
    )
    add_address_arguments(parser)


def add_address_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="the port to listen on (8080); 0 for any")


def run(options: argparse.Namespace) -> int:
    import uvloop

    log_as(load(overrides={"database_url": options.database}, extensions=None))
    app, settings = named_app(options), settings_of(options)
    log_as(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, app, options))


async def _run(settings: Settings, app: App | None, options: argparse.Namespace) -> int:
    from holdfast.observe.tracing import exported
    from holdfast.server.http.server import serve

    stop = asyncio.Event()
    stop_on_signals(stop, signal.SIGINT, signal.SIGTERM, waits_for="the requests under way")
    async with (
        exported("holdfast-server", wanted=settings.traces),
        server_of(settings, app, options.host) as server,
    ):
        _collect_seldom()
        await serve(server, host=options.host, port=options.port, stop=stop, on_ready=_say_ready)
    return 0


def _collect_seldom() -> None:
    """What is here now stays, and a request leaves next to nothing that only the collector could free."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)


def _say_ready(url: str) -> None:
    log.info("ready: %s, described at %s/docs", url, url)


@asynccontextmanager
async def server_of(
    settings: Settings, app: App | None, host: str, *, unknown_types: str = "refuse"
) -> AsyncIterator[ServerState]:
    """Open, and safe to be asked from wherever that address can be reached.

    `unknown_types`: what is done with them where the settings leave it open and there is an app.
    """
    from holdfast.assembly.server import open_server
    from holdfast.assembly.startup_log import log_startup_warnings
    from holdfast.clock import Clock
    from holdfast.engine.declare import refuse_severe
    from holdfast.ids import Ids
    from holdfast.lifecycle import Lifecycles
    from holdfast.model.loopback import is_loopback
    from holdfast.server.startup_checks import dev_secret, refuse_insecure

    local = is_loopback(host)
    if local and not settings.admin_secret:
        settings = msgspec.structs.replace(settings, admin_secret=dev_secret(settings.data_dir))
        know([settings.admin_secret])
    if settings.unknown_job_types == "auto":
        wanted = "accept" if app is None else unknown_types
        settings = msgspec.structs.replace(settings, unknown_job_types=wanted)
    async with open_server(
        settings,
        lifecycles=Lifecycles() if app is None else app.lifecycles,
        clock=Clock(),
        ids=Ids(),
        allow_local=local,
        app="" if app is None else app.loaded_as or "",
        extensions=() if app is None else app.extensions.values(),
        hooks=None if app is None else app.hooks(),
    ) as server:
        await refuse_insecure(server.engine, settings, host)
        await log_startup_warnings(server.engine, server.retention)
        if not local:
            log.warning("what goes to and from %s is plain HTTP: put a proxy that speaks TLS before it", host)
        if app is not None:
            found = await server.engine.job_types.declare(
                *(each.job_type for each in app.handlers.values()), app=app.name
            )
            refuse_severe(found)
        yield server
