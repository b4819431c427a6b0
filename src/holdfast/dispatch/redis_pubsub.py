"""Redis Pub/Sub: servers notify each other of changes, and publish job events to external subscribers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.redis_connection import CALL_SECONDS, reply_to
from holdfast.ids import Ids

CHANGED = "holdfast:changed"  # between servers: new events in the event log
# Channels for external subscribers, with the configured prefix. The last two are followed by the job's subject, or else
# its id.
WORKER_STATUS, PROGRESS, COMPLETE = "worker_status", "transcode_progress:", "transcode_complete:"
PUBLISHER = "holdfast:publisher"
LEASE_SECONDS = 3.0  # of the publishing server; then another server takes over
DEBOUNCE_SECONDS = 0.02  # between two notifications: one covers all earlier changes
LISTEN_SECONDS = 5.0

# Renew or take the publisher lease.
_TAKE_LEASE = """
local who = redis.call('GET', KEYS[1])
if who and who ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

log = logging.getLogger(__name__)
_GLOB = re.compile(r"([*?\[\]\\])")
_encode = msgspec.json.Encoder().encode


class RedisPubSub:
    """Without Redis, servers poll the event log, with a little more latency."""

    def __init__(
        self, redis: Any, breaker: Breaker, clock: Clock, ids: Ids, *, poll: Callable[[], None], prefix: str = ""
    ) -> None:
        self.redis, self.breaker, self._clock, self._poll = redis, breaker, clock, poll
        self._prefix = prefix
        self._me = f"{ids.bits(64):016x}".encode()
        self._changed = False
        self._notifying: asyncio.Task[None] | None = None

    # -- between servers --------------------------------------------------------------------------------------

    def changed(self, *_: object) -> None:
        """An observer of the engine: this server committed a change."""
        self._poll()
        self._changed = True
        if self._notifying is None and self.breaker.allows:
            self._notifying = asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        try:
            while self._changed and self.breaker.allows:
                self._changed = False
                await reply_to(self.redis.publish(CHANGED, self._me), self.breaker)
                await self._clock.sleep(DEBOUNCE_SECONDS)
        finally:
            self._notifying = None

    async def run(self) -> None:
        """Receive the notifications of other servers, until cancelled."""
        from redis.exceptions import RedisError

        while True:
            try:
                async with self.redis.pubsub() as subscription:
                    async with asyncio.timeout(CALL_SECONDS):
                        await subscription.subscribe(CHANGED)
                    self.breaker.succeeded()
                    self._poll()  # notifications before the subscription were missed
                    await self._listen(subscription)
            except (RedisError, OSError, TimeoutError) as error:
                self.breaker.failed(type(error).__name__)
            await self._clock.sleep(max(0.1, self.breaker.pause))

    async def _listen(self, subscription: Any) -> None:
        while True:
            message = await subscription.get_message(ignore_subscribe_messages=True, timeout=LISTEN_SECONDS)
            if message is not None and message["data"] != self._me:
                self._poll()

    # -- to external subscribers ------------------------------------------------------------------------------

    async def is_publisher(self) -> bool:
        """Whether there are subscribers and this server publishes. One server publishes for all."""
        if not self.breaker.allows or not await self._has_subscribers():
            return False
        taking = self.redis.eval(_TAKE_LEASE, 1, PUBLISHER, self._me, round(LEASE_SECONDS * 1000))
        return bool(await reply_to(taking, self.breaker))

    async def _has_subscribers(self) -> bool:
        pipeline = self.redis.pipeline(transaction=False)
        pipeline.execute_command("PUBSUB", "NUMPAT")
        literal = _GLOB.sub(r"\\\1", self._prefix)
        for pattern in (WORKER_STATUS, f"{PROGRESS}*", f"{COMPLETE}*"):
            pipeline.execute_command("PUBSUB", "CHANNELS", literal + pattern)
        return any(await reply_to(pipeline.execute(), self.breaker) or ())

    async def publish(self, messages: list[tuple[str, Mapping[str, Any]]]) -> None:
        """Publish each (channel, message); the channel without its prefix."""
        pipeline = self.redis.pipeline(transaction=False)
        for channel, message in messages:
            pipeline.execute_command("PUBLISH", self._prefix + channel, _encode(message))
        await reply_to(pipeline.execute(), self.breaker)

    async def close(self) -> None:
        if self._notifying is not None:
            await asyncio.wait([self._notifying])
        await self.redis.aclose()
