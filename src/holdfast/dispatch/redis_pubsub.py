"""Redis Pub/Sub between servers: whoever changed something says so, and the others look at once instead of soon."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker
from holdfast.ids import Ids

CHANGED = "holdfast:changed"  # among servers: look into the event log
# For programs outside, each behind the prefix that the settings give. The last two are followed by what the job is
# about, else by its id.
WORKER_STATUS, PROGRESS, COMPLETE = "worker_status", "transcode_progress:", "transcode_complete:"
SPEAKER = "holdfast:speaker"
SPEAKS_SECONDS = 3.0  # without a word from the speaker, another speaks
CALL_SECONDS = 1.5
CALM_SECONDS = 0.02  # between two words about changes: one is good for all that came before it
LISTEN_SECONDS = 5.0

# Ours still, or ours from now on.
_SPEAK = """
local who = redis.call('GET', KEYS[1])
if who and who ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

log = logging.getLogger(__name__)
_GLOB = re.compile(r"([*?\[\]\\])")
_encode = msgspec.json.Encoder().encode


class RedisPubSub:
    """All that is lost with Redis is a fraction of a second: servers look by themselves, only less often."""

    def __init__(
        self, redis: Any, breaker: Breaker, clock: Clock, ids: Ids, *, look: Callable[[], None], prefix: str = ""
    ) -> None:
        self.redis, self.breaker, self._clock, self._look = redis, breaker, clock, look
        self._prefix = prefix
        self._me = f"{ids.bits(64):016x}".encode()
        self._changed = False
        self._telling: asyncio.Task[None] | None = None

    # -- among servers ----------------------------------------------------------------------------------------

    def changed(self, *_: object) -> None:
        """An observer of the engine: something was committed through this server."""
        self._look()
        self._changed = True
        if self._telling is None and self.breaker.allows:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._changed and self.breaker.allows:
                self._changed = False
                await self.ask(self.redis.publish(CHANGED, self._me))
                await self._clock.sleep(CALM_SECONDS)
        finally:
            self._telling = None

    async def run(self) -> None:
        """Until cancelled: listen to the other servers."""
        from redis.exceptions import RedisError

        while True:
            try:
                async with self.redis.pubsub() as heard:
                    async with asyncio.timeout(CALL_SECONDS):
                        await heard.subscribe(CHANGED)
                    self.breaker.succeeded()
                    self._look()  # what was said before we listened
                    await self._listen(heard)
            except (RedisError, OSError, TimeoutError) as error:
                self.breaker.failed(type(error).__name__)
            await self._clock.sleep(max(0.1, self.breaker.pause))

    async def _listen(self, heard: Any) -> None:
        while True:
            said = await heard.get_message(ignore_subscribe_messages=True, timeout=LISTEN_SECONDS)
            if said is not None and said["data"] != self._me:
                self._look()

    # -- to whoever listens outside ---------------------------------------------------------------------------

    async def speaks(self) -> bool:
        """Does somebody listen, and is it for us to speak? One server does for all."""
        if not self.breaker.allows or not await self._is_listened_to():
            return False
        return bool(await self.ask(self.redis.eval(_SPEAK, 1, SPEAKER, self._me, round(SPEAKS_SECONDS * 1000))))

    async def _is_listened_to(self) -> bool:
        pipeline = self.redis.pipeline(transaction=False)
        pipeline.execute_command("PUBSUB", "NUMPAT")
        literal = _GLOB.sub(r"\\\1", self._prefix)
        for pattern in (WORKER_STATUS, f"{PROGRESS}*", f"{COMPLETE}*"):
            pipeline.execute_command("PUBSUB", "CHANNELS", literal + pattern)
        return any(await self.ask(pipeline.execute()) or ())

    async def say(self, words: list[tuple[str, Mapping[str, Any]]]) -> None:
        """(channel, what) to each; the channel without its prefix."""
        pipeline = self.redis.pipeline(transaction=False)
        for place, what in words:
            pipeline.execute_command("PUBLISH", self._prefix + place, _encode(what))
        await self.ask(pipeline.execute())

    async def ask(self, asked: Any) -> Any:
        """None where Redis does not answer in time, or not at all."""
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await asked
        except (RedisError, OSError, TimeoutError) as error:
            self.breaker.failed(type(error).__name__)
            return None
        self.breaker.succeeded()
        return answer

    async def close(self) -> None:
        if self._telling is not None:
            await asyncio.wait([self._telling])
        await self.redis.aclose()
