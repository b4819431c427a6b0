"""The brokers under one roof: how each is named in the settings, emptied, taken apart and littered."""

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
from tests.dispatch.console import QUEUE, Console
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer
from tests.servers.sqs import SqsServer

MODES = ("redis", "hybrid", "nats", "sqs")


class Place:
    """A real server. `url` is its own address; whoever is to reach it by another wire is given another."""

    setting: ClassVar[str]  # that names its address
    patience_seconds = 2.5  # by then whoever asks a silent server has given up
    misses_its_messages = False  # a reader can see that somebody emptied it

    def __init__(self, mode: str, server: Any) -> None:
        self.mode, self.server, self.url = mode, server, str(server.url)

    def settings(self, database_url: str, *, url: str = "", **more: Any) -> Settings:
        return Settings(
            **{"database_url": database_url, "dispatch": self.mode, self.setting: url or self.url} | self.extra() | more
        )

    def extra(self) -> dict[str, Any]:
        return {}

    def broker(self, kind: str) -> Broker:
        """One more reader of this kind."""
        raise NotImplementedError

    async def empty(self) -> None:
        """All that waits there is gone."""
        raise NotImplementedError

    async def take_apart(self, chance: random.Random) -> None:
        """Something that was made there is gone: a stream, a group of readers, a queue."""
        raise NotImplementedError

    async def litter(self, trash: bytes, chance: random.Random) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


class RedisPlace(Place):
    setting = "redis_url"
    misses_its_messages = True

    def broker(self, kind: str) -> Broker:
        return RedisBroker(self.url, kind, Clock(), Ids())

    async def empty(self) -> None:
        self.server.flush()

    async def take_apart(self, chance: random.Random) -> None:
        stream = chance.choice(list(STREAMS.values()))
        if chance.random() < 0.5:
            self.server.say("DEL", stream)
        elif self.server.say("EXISTS", stream):
            for group in self.server.say("XINFO", "GROUPS", stream):
                self.server.say("XGROUP", "DESTROY", stream, group[1])

    async def litter(self, trash: bytes, chance: random.Random) -> None:
        self.server.say("XADD", chance.choice(list(STREAMS.values())), "*", "hint", trash)


class NatsPlace(Place):
    setting = "nats_url"
    _client: Any = None

    def broker(self, kind: str) -> Broker:
        return NatsBroker(self.url, kind)

    async def empty(self) -> None:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await (await self._streams()).purge_stream(STREAM)

    async def take_apart(self, chance: random.Random) -> None:
        streams = await self._streams()
        with contextlib.suppress(nats.js.errors.NotFoundError):
            if chance.random() < 0.5:
                await streams.delete_stream(STREAM)
            else:
                for consumer in await streams.consumers_info(STREAM):
                    await streams.delete_consumer(STREAM, consumer.name)

    async def litter(self, trash: bytes, chance: random.Random) -> None:
        await self._streams()
        await self._client.publish(chance.choice(list(SUBJECTS.values())), trash)

    async def _streams(self) -> Any:
        if self._client is None:
            self._client = await nats.connect(self.url)
        return self._client.jetstream()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class SqsPlace(Place):
    setting = "sqs_endpoint_url"
    patience_seconds = 4.0
    console: Console

    def extra(self) -> dict[str, Any]:
        return {"sqs_queue": QUEUE}

    def broker(self, kind: str) -> Broker:
        return SqsBroker(QUEUE, self.url)

    async def empty(self) -> None:
        with contextlib.suppress(self._no_queue):
            await self.console.client.purge_queue(QueueUrl=await self.console.url())

    async def take_apart(self, chance: random.Random) -> None:
        with contextlib.suppress(self._no_queue):
            await self.console.client.delete_queue(QueueUrl=await self.console.url())

    async def litter(self, trash: bytes, chance: random.Random) -> None:
        """Without what SQS itself refuses."""
        letters = (letter if letter.isprintable() else "?" for letter in trash.decode("latin-1"))
        with contextlib.suppress(self._no_queue):
            await self.console.send("".join(letters) or "-")

    @property
    def _no_queue(self) -> type[Exception]:
        found: type[Exception] = self.console.client.exceptions.QueueDoesNotExist
        return found


@contextlib.asynccontextmanager
async def place_of(mode: str, server: RedisServer | NatsServer | SqsServer) -> AsyncIterator[Place]:
    if isinstance(server, SqsServer):
        async with Console.of(server) as console:
            place = SqsPlace(mode, server)
            place.console = console
            yield place
        return
    other = NatsPlace(mode, server) if isinstance(server, NatsServer) else RedisPlace(mode, server)
    try:
        yield other
    finally:
        await other.close()
