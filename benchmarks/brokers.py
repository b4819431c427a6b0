"""The ways to send hints, as they are measured: the settings that name each, and a real server where it needs one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from holdfast.settings import Settings
from tests.dispatch.backends import Backend, NatsBackend, RedisBackend, SqsBackend
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer
from tests.servers.sqs import SqsServer

DATABASE = "database"
MODES = (DATABASE, "redis", "nats", "sqs")  # hybrid is redis and database together


class Ways:
    def __init__(self, places: dict[str, Backend]) -> None:
        self.places = places

    def settings(self, mode: str, database_url: str) -> Settings:
        return Settings(database_url=database_url) if mode == DATABASE else self.places[mode].settings(database_url)


@contextmanager
def ways() -> Iterator[Ways]:
    """With a server for each broker."""
    with ExitStack() as stack:
        redis, nats, sqs = (stack.enter_context(kind.started()) for kind in (RedisServer, NatsServer, SqsServer))
        stack.enter_context(patch.dict(os.environ, SqsServer.credentials))
        places = [RedisBackend("redis", redis), NatsBackend("nats", nats), SqsBackend("sqs", sqs)]
        yield Ways({backend.mode: backend for backend in places})


def environment(settings: Settings) -> dict[str, str]:
    """For a process that is to have the same."""
    said = {name: getattr(settings, name) for name in Settings.__struct_fields__}
    ours = {f"HOLDFAST_{name.upper()}": str(said[name]) for name in said if said[name] != getattr(Settings(), name)}
    return {**os.environ, **ours}
