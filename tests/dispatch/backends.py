"""The brokers behind one interface: their settings, and how a test purges, damages and pollutes each of them."""

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import nats

from holdfast.clock import Clock
from holdfast.dispatch.broker import Broker
from holdfast.dispatch.nats import SUBJECTS, NatsBroker
from holdfast.dispatch.nats_pull import STREAM
from holdfast.dispatch.redis import STREAMS, RedisBroker
from holdfast.dispatch.sqs import SqsBroker
from holdfast.ids import Ids
from holdfast.settings import Settings
from tests.dispatch.sqs_admin import QUEUE, SqsAdmin
from tests.servers.aws import AwsServer
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer

MODES = ("redis", "hybrid", "nats", "sqs")


class Backend:
    """A real server. `url` is its own address; a client behind a proxy gets the address of the proxy instead."""

    setting: ClassVar[str]  # the setting with its address
    call_timeout_seconds = 2.5  # by then a call to a silent server has timed out
    detects_lost_messages = False  # whether a reader notices that it was purged

    def __init__(self, mode: str, server: Any) -> None:
        self.mode, self.server, self.url = mode, server, str(server.url)

    def settings(self, database_url: str, *, url: str = "", **more: Any) -> Settings:
        return Settings(
            **{"database_url": database_url, "dispatch": self.mode, self.setting: url or self.url} | self.extra() | more
        )

    def extra(self) -> dict[str, Any]:
        return {}

    def broker(self, kind: str) -> Broker:
        """A new client for this kind of worker."""
        raise NotImplementedError

    async def purge(self) -> None:
        """Delete all waiting messages."""
        raise NotImplementedError

    async def delete_objects(self, rng: random.Random) -> None:
        """Delete a stream, a consumer group or a queue."""
        raise NotImplementedError

    async def send_garbage(self, garbage: bytes, rng: random.Random) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


class RedisBackend(Backend):
    setting = "redis_url"
    detects_lost_messages = True

    def broker(self, kind: str) -> Broker:
        return RedisBroker(self.url, kind, Clock(), Ids())

    async def purge(self) -> None:
        self.server.flush()

    async def delete_objects(self, rng: random.Random) -> None:
        stream = rng.choice(list(STREAMS.values()))
        if rng.random() < 0.5:
            self.server.say("DEL", stream)
        elif self.server.say("EXISTS", stream):
            for group in self.server.say("XINFO", "GROUPS", stream):
                self.server.say("XGROUP", "DESTROY", stream, group[1])

    async def send_garbage(self, garbage: bytes, rng: random.Random) -> None:
        self.server.say("XADD", rng.choice(list(STREAMS.values())), "*", "hint", garbage)


class NatsBackend(Backend):
    setting = "nats_url"
    _client: Any = None

    def broker(self, kind: str) -> Broker:
        return NatsBroker(self.url, kind)

    async def purge(self) -> None:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await (await self._streams()).purge_stream(STREAM)

    async def delete_objects(self, rng: random.Random) -> None:
        streams = await self._streams()
        with contextlib.suppress(nats.js.errors.NotFoundError):
            if rng.random() < 0.5:
                await streams.delete_stream(STREAM)
            else:
                for consumer in await streams.consumers_info(STREAM):
                    await streams.delete_consumer(STREAM, consumer.name)

    async def send_garbage(self, garbage: bytes, rng: random.Random) -> None:
        await self._streams()
        await self._client.publish(rng.choice(list(SUBJECTS.values())), garbage)

    async def _streams(self) -> Any:
        if self._client is None:
            self._client = await nats.connect(self.url)
        return self._client.jetstream()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class SqsBackend(Backend):
    setting = "sqs_endpoint_url"
    call_timeout_seconds = 4.0
    admin: SqsAdmin

    def extra(self) -> dict[str, Any]:
        return {"sqs_queue": QUEUE}

    def broker(self, kind: str) -> Broker:
        return SqsBroker(QUEUE, self.url)

    async def purge(self) -> None:
        with contextlib.suppress(self._no_queue):
            await self.admin.client.purge_queue(QueueUrl=await self.admin.url())

    async def delete_objects(self, rng: random.Random) -> None:
        with contextlib.suppress(self._no_queue):
            await self.admin.client.delete_queue(QueueUrl=await self.admin.url())

    async def send_garbage(self, garbage: bytes, rng: random.Random) -> None:
        """Without characters that SQS rejects."""
        letters = (letter if letter.isprintable() else "?" for letter in garbage.decode("latin-1"))
        with contextlib.suppress(self._no_queue):
            await self.admin.send("".join(letters) or "-")

    @property
    def _no_queue(self) -> type[Exception]:
        found: type[Exception] = self.admin.client.exceptions.QueueDoesNotExist
        return found


@contextlib.asynccontextmanager
async def open_backend(mode: str, server: RedisServer | NatsServer | AwsServer) -> AsyncIterator[Backend]:
    if isinstance(server, AwsServer):
        async with SqsAdmin.of(server) as admin:
            backend = SqsBackend(mode, server)
            backend.admin = admin
            yield backend
        return
    other = NatsBackend(mode, server) if isinstance(server, NatsServer) else RedisBackend(mode, server)
    try:
        yield other
    finally:
        await other.close()
