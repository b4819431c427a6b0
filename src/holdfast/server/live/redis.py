"""What servers share through Redis: change notifications, published events, and a cache of job status."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from holdfast.background import Loop
from holdfast.batching import Batcher
from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker, OutageLogger
from holdfast.dispatch.optional import require
from holdfast.dispatch.redis_pubsub import RedisPubSub
from holdfast.dispatch.redis_status import StatusCache
from holdfast.engine import Engine
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.model.summary import JobSummary
from holdfast.server.live.feed import EventFeed
from holdfast.server.live.redis_announcer import RedisAnnouncer
from holdfast.server.live.redis_cache import JobCache, JobKey
from holdfast.settings import Settings

log = logging.getLogger(__name__)


def open_redis(
    settings: Settings, engine: Engine, summaries: Batcher[JobKey, JobSummary], feed: EventFeed, clock: Clock, ids: Ids
) -> RedisServices | None:
    """None without HOLDFAST_REDIS_URL. An unreachable Redis is no error."""
    if not settings.redis_url:
        if settings.redis_cache_seconds:
            raise Invalid("HOLDFAST_REDIS_CACHE_SECONDS needs HOLDFAST_REDIS_URL", code="invalid_setting")
        return None
    require("redis", extra="redis", who="HOLDFAST_REDIS_URL")
    from holdfast.dispatch.redis_connection import connect

    try:
        redis = connect(settings.redis_url, settings.redis_pool_size)
    except (ValueError, TypeError):  # not shown: it may contain a password
        raise Invalid(
            "HOLDFAST_REDIS_URL cannot be read; write it like redis://HOST:PORT/0", code="invalid_setting"
        ) from None
    return RedisServices(
        *(redis, engine, summaries, feed, clock, ids),
        cache_seconds=settings.redis_cache_seconds,
        channel_prefix=settings.redis_channel_prefix,
    )


class RedisServices:
    """Optional: without Redis the server polls the database."""

    def __init__(
        self,
        redis: Any,
        engine: Engine,
        summaries: Batcher[JobKey, JobSummary],
        feed: EventFeed,
        clock: Clock,
        ids: Ids,
        *,
        cache_seconds: float,
        channel_prefix: str = "",
    ) -> None:
        self.breaker = Breaker(clock, ids)
        OutageLogger(
            self.breaker,
            lost=partial(log.warning, "connection to Redis lost (%s); polling the database until it is back"),
            back=partial(log.info, "connection to Redis restored"),
        )
        self._live = RedisPubSub(redis, self.breaker, clock, ids, poll=feed.wake, prefix=channel_prefix)
        self._announcer = RedisAnnouncer(self._live, feed, clock)
        self.cached: JobCache | None = None
        if cache_seconds:
            cache = StatusCache(
                redis, self.breaker, clock, seconds=cache_seconds, secret=lambda: engine.keys.server_secret("status")
            )
            self.cached = JobCache(cache, engine, summaries, feed, clock)
        engine.ctx.observers.append(self._live.changed)

    @property
    def loops(self) -> dict[str, Loop]:
        loops: dict[str, Loop] = {"Redis subscriber": self._live.run, "Redis announcer": self._announcer.run}
        return loops if self.cached is None else {**loops, "Redis status cache": self.cached.run}

    async def close(self) -> None:
        if self.cached is not None:
            await self.cached.close()
        await self._live.close()
