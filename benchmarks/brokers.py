"""The dispatch modes that are measured: their settings, and a real server for each broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from holdfast.settings import Settings
from tests.dispatch.backends import Backend, NatsBackend, RedisBackend, SqsBackend
from tests.servers.aws import AwsServer
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer

DATABASE = "database"
MODES = (DATABASE, "redis", "nats", "sqs")  # hybrid is redis and database together


class BrokerModes:
    def __init__(self, backends: dict[str, Backend]) -> None:
        self.backends = backends

    def settings(self, mode: str, database_url: str) -> Settings:
        return Settings(database_url=database_url) if mode == DATABASE else self.backends[mode].settings(database_url)


@contextmanager
def ways() -> Iterator[BrokerModes]:
    """Start a server for each broker."""
    with ExitStack() as stack:
        redis, nats, sqs = (stack.enter_context(kind.started()) for kind in (RedisServer, NatsServer, AwsServer))
        stack.enter_context(patch.dict(os.environ, AwsServer.credentials))
        backends = [RedisBackend("redis", redis), NatsBackend("nats", nats), SqsBackend("sqs", sqs)]
        yield BrokerModes({backend.mode: backend for backend in backends})


def environment(settings: Settings) -> dict[str, str]:
    """The environment of a process with these settings."""
    said = {name: getattr(settings, name) for name in Settings.__struct_fields__}
    ours = {f"HOLDFAST_{name.upper()}": str(said[name]) for name in said if said[name] != getattr(Settings(), name)}
    return {**os.environ, **ours}
