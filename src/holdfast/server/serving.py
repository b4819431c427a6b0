"""A server process: its socket, its limits on connections, its start and its end."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable

import uvicorn

from holdfast.errors import Invalid
from holdfast.server.app import HttpApp
from holdfast.server.server import Server

KEEP_ALIVE_SECONDS = 30
BACKLOG = 2048


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(server: Server, *, host: str, port: int, stop: asyncio.Event, on_ready: Callable[[str], None]) -> None:
    """Answer until `stop` is set; then let the requests that are under way finish."""
    config = uvicorn.Config(
        HttpApp(server),
        host=host,
        port=port,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=10,
    )
    running = _Uvicorn(config)
    config.load()
    running.lifespan = config.lifespan_class(config)
    try:
        await running.startup()
    except (OSError, SystemExit) as error:
        raise Invalid(f"cannot listen on {host} port {port}: {error}", code="cannot_listen") from None
    socket = running.servers[0].sockets[0]
    on_ready(f"http://{_shown(host)}:{socket.getsockname()[1]}")
    ticking = asyncio.create_task(running.main_loop())
    await stop.wait()
    running.should_exit = True
    await ticking
    await running.shutdown()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Uvicorn(uvicorn.Server):
    """Signals are ours to handle."""
