"""Runs the HTTP server: listening socket, uvicorn, start and graceful stop."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from holdfast.errors import Invalid
from holdfast.server.app import UNKNOWN, HttpApp
from holdfast.server.http.protocol import KEEP_ALIVE_SECONDS, HttpProtocol, OnRejected, ServerConfig
from holdfast.server.state import ServerState

BACKLOG = 2048
CONNECTIONS_MAX = 10_000
RESERVED_FILES = 200  # file descriptors for the database, logs and other files
STOP_SECONDS = 10


@asynccontextmanager
async def served(
    server: ServerState,
    *,
    host: str,
    port: int,
    ports: int = 1,
    connections_max: int | None = None,
) -> AsyncIterator[str]:
    """Serve at the URL that is yielded. On exit long polls end at once, and running requests finish.

    `ports`: number of ports to try, starting at `port`.
    """
    app = HttpApp(server)
    listening = listen(host, port, ports)
    limit = connections_max or connection_limit()

    def on_rejected(method: str, status: int) -> None:
        server.metrics.rejected_early(method, UNKNOWN, status)

    async with answering(app, listening, request_id=server.request_id, connections_max=limit, on_rejected=on_rejected):
        try:
            yield address(listening)
        finally:
            server.stop()


@asynccontextmanager
async def answering(
    app: Any,
    listening: socket.socket,
    *,
    request_id: Callable[[], str],
    connections_max: int = CONNECTIONS_MAX,
    on_rejected: OnRejected = lambda method, status: None,
) -> AsyncIterator[None]:
    """Serve any ASGI application on a socket, with the same limits."""
    config = _config(app)
    config.request_id, config.connections_max, config.on_rejected = request_id, connections_max, on_rejected
    running = uvicorn.Server(config)
    running.config.load()
    running.lifespan = running.config.lifespan_class(running.config)
    await running.startup(sockets=[listening])
    ticking = asyncio.create_task(running.main_loop())
    try:
        yield
    finally:
        running.should_exit = True
        await ticking
        await running.shutdown(sockets=[listening])


def _config(app: Any) -> ServerConfig:
    return ServerConfig(
        app,
        interface="asgi3",
        loop="none",
        http=HttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # errors of clients are in the response
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def listen(host: str, port: int, ports: int = 1, *, option: str = "--port") -> socket.socket:
    """A socket on the first free port of the range; port 0: any. `option`: the command-line option for the message."""
    if not 0 <= port < 65_536:
        raise Invalid(f"invalid port {port}; give one from 0 to 65535", code="cannot_listen")
    for number in range(port, min(port + ports, 65_536) if port else 1):
        try:
            return _bound(host, number)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or number == port + ports - 1:
                raise _cannot_listen(host, number, error, option) from None
    raise Invalid(f"all ports from {port} on are in use; choose another with {option}", code="cannot_listen")


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
        found.listen(BACKLOG)  # with SO_REUSEADDR two sockets may bind one port, but only one may listen
    except OSError:
        found.close()
        raise
    return found


def _cannot_listen(host: str, port: int, error: OSError, option: str) -> Invalid:
    match error:
        case socket.gaierror():
            why = f"unknown host {host!r}"
        case OSError(errno=errno.EADDRINUSE):
            why = f"the port is in use; choose another with {option}"
        case OSError(errno=errno.EACCES):
            why = "permission denied; choose a port from 1024 on, and put a proxy in front"
        case OSError(errno=errno.EADDRNOTAVAIL):
            why = "this machine does not have that address"
        case _:
            why = os.strerror(error.errno or 0)
    return Invalid(f"cannot listen on {host} port {port}: {why}", code="cannot_listen")


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def connection_limit() -> int:
    """The connections that fit the limit of open files, which is raised as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else max(16, min(CONNECTIONS_MAX, soft - RESERVED_FILES))
