"""`holdfast serve`: answer over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from typing import Any

from holdfast.cli.apps import add_app_argument
from holdfast.cli.parser import command
from holdfast.cli.worker import log_to_terminal, stop_on_signals
from holdfast.settings import Settings, load

log = logging.getLogger("holdfast.serve")


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "serve",
        run,
        about="answer over HTTP: clients hand in jobs, workers anywhere do them",
        examples=["holdfast serve", "holdfast serve --host 0.0.0.0 --port 80"],
        json=False,
    )
    add_app_argument(parser, required=False)
    add_address_arguments(parser)


def add_address_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="the port to listen on (8080)")


def run(options: argparse.Namespace) -> int:
    log_to_terminal()
    return asyncio.run(_run(load(overrides={"database_url": options.database}), options))


async def _run(settings: Settings, options: argparse.Namespace) -> int:
    from holdfast.assembly import open_server
    from holdfast.clock import Clock
    from holdfast.ids import Ids
    from holdfast.lifecycle import Lifecycles
    from holdfast.server.serving import is_loopback, serve

    stop = asyncio.Event()
    stop_on_signals(stop, signal.SIGINT, signal.SIGTERM)
    async with open_server(
        settings, lifecycles=Lifecycles(), clock=Clock(), ids=Ids(), open_to_anybody=is_loopback(options.host)
    ) as server:
        await serve(
            server,
            host=options.host,
            port=options.port,
            stop=stop,
            on_ready=lambda url: log.info("ready: %s", url),
        )
    return 0
