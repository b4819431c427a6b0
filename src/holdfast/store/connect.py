"""Opens connections to PostgreSQL, with keepalives and timeouts, so that each end detects a half-open connection."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import asyncpg

from holdfast.model.process_role import application_name

# All errors of the driver, the server and the network.
DATABASE_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

IDLE_IN_TRANSACTION_SECONDS = 10.0

# The client closes an unresponsive connection after 9 s, the server after 20 s: by then a live process has reconnected
# and holds its advisory lock on the new connection.
_CLIENT_KEEPALIVE = {"TCP_KEEPIDLE": 3, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
_CLIENT_USER_TIMEOUT_MILLISECONDS = 9000
_SERVER = (
    "tcp_keepalives_idle = 10",
    "tcp_keepalives_interval = 5",
    "tcp_keepalives_count = 2",
    "tcp_user_timeout = 20000",
)


def _measured(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def measured(connection: PostgresConnection, *args: Any, **kwargs: Any) -> Any:
        connection.asked_at = time.monotonic()
        try:
            return await ask(connection, *args, **kwargs)
        except (TimeoutError, asyncio.CancelledError):
            connection.unanswered = time.monotonic() - connection.asked_at
            raise
        finally:
            connection.asked_at = 0.0

    return measured


class PostgresConnection(asyncpg.Connection):
    """A connection that measures how long it waits for the server.

    `asked_at`: the start of the running statement, in monotonic seconds; 0 when idle. `unanswered`: how many seconds a
    statement had waited when a timeout or the caller canceled it. `replication_unconfirmed`: a commit stopped waiting
    for the synchronous standby.
    """

    asked_at = 0.0
    unanswered = 0.0
    replication_unconfirmed = False

    fetch = _measured(asyncpg.Connection.fetch)
    execute = _measured(asyncpg.Connection.execute)
    executemany = _measured(asyncpg.Connection.executemany)


async def open_connection(url: str, **options: Any) -> PostgresConnection:
    """`application_name` is the only startup parameter: poolers reject unknown ones."""
    named = "application_name=" in url  # set by the operator
    settings = None if named else {"application_name": application_name()}
    connection: PostgresConnection = await asyncpg.connect(
        url, connection_class=PostgresConnection, server_settings=settings, **options
    )
    _keep_alive(connection)
    return connection


def transaction_settings() -> list[str]:
    """Also used behind a pooler, with SET LOCAL: a client that vanishes inside a transaction releases its locks."""
    return [f"idle_in_transaction_session_timeout = {int(IDLE_IN_TRANSACTION_SECONDS * 1000)}"]


def session_settings() -> list[str]:
    """For a connection that is not shared by a pooler. Each statement must see what was committed before it began, also
    where the database has another default."""
    return [*_SERVER, "default_transaction_isolation = 'read committed'", *transaction_settings()]


def _keep_alive(connection: Any) -> None:
    """Set the TCP keepalive options that the system has. A Unix socket needs none."""
    wire = connection._transport.get_extra_info("socket")
    if wire is None or wire.family not in (socket.AF_INET, socket.AF_INET6):
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {**_CLIENT_KEEPALIVE, "TCP_USER_TIMEOUT": _CLIENT_USER_TIMEOUT_MILLISECONDS}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            wire.setsockopt(socket.IPPROTO_TCP, option, value)
