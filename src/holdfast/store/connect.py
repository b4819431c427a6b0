"""How a connection to PostgreSQL is opened: so that each end notices when the other one has vanished."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import asyncpg

from holdfast.model.process_role import application_name

IDLE_IN_TRANSACTION_SECONDS = 10.0

# Our end gives up on a silent peer after 9 s. The server gives up after 20 s: by then a process that is alive has come
# back on another connection and holds its presence lock there.
_CLIENT_KEEPALIVE = {"TCP_KEEPIDLE": 3, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
_CLIENT_USER_TIMEOUT_MILLISECONDS = 9000
_SERVER = (
    "tcp_keepalives_idle = 10",
    "tcp_keepalives_interval = 5",
    "tcp_keepalives_count = 2",
    "tcp_user_timeout = 20000",
)


class PostgresConnection(asyncpg.Connection):
    """Knows how long it has waited for an answer of the server.

    `asked_at`: since when, in monotonic seconds; 0 while it does not wait. `unanswered`: how many seconds it had waited
    when a statement was given up, by a timeout or by the caller. `replication_unconfirmed`: a commit stopped waiting
    for the synchronous standby.
    """

    asked_at = 0.0
    unanswered = 0.0
    replication_unconfirmed = False

    async def fetch(self, *args: Any, **kwargs: Any) -> Any:
        self.asked_at = time.monotonic()
        try:
            return await super().fetch(*args, **kwargs)
        except (TimeoutError, asyncio.CancelledError):
            self.unanswered = time.monotonic() - self.asked_at
            raise
        finally:
            self.asked_at = 0.0

    async def execute(self, *args: Any, **kwargs: Any) -> Any:
        self.asked_at = time.monotonic()
        try:
            return await super().execute(*args, **kwargs)
        except (TimeoutError, asyncio.CancelledError):
            self.unanswered = time.monotonic() - self.asked_at
            raise
        finally:
            self.asked_at = 0.0


async def open_connection(url: str, **options: Any) -> PostgresConnection:
    """The name is the only start-up parameter: poolers know it, and refuse those that they do not know."""
    named = "application_name=" in url  # by the operator, who knows better
    settings = None if named else {"application_name": application_name()}
    connection: PostgresConnection = await asyncpg.connect(
        url, connection_class=PostgresConnection, server_settings=settings, **options
    )
    _keep_alive(connection)
    return connection


def transaction_settings() -> list[str]:
    """Also behind a pooler, with SET LOCAL. A machine that vanishes inside a transaction keeps its locks no longer."""
    return [f"idle_in_transaction_session_timeout = {int(IDLE_IN_TRANSACTION_SECONDS * 1000)}"]


def session_settings() -> list[str]:
    """For a connection that is ours alone."""
    return [*_SERVER, *transaction_settings()]


def _keep_alive(connection: Any) -> None:
    """Where the system has these options. A Unix socket needs none: the kernel knows both ends."""
    wire = connection._transport.get_extra_info("socket")
    if wire is None or wire.family not in (socket.AF_INET, socket.AF_INET6):
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {**_CLIENT_KEEPALIVE, "TCP_USER_TIMEOUT": _CLIENT_USER_TIMEOUT_MILLISECONDS}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            wire.setsockopt(socket.IPPROTO_TCP, option, value)
