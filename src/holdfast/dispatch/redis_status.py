"""A cache of job status in Redis, for clients that poll often. Only reads use it."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.batching import Batcher
from holdfast.clock import Clock, to_micros
from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.redis_connection import reply_to
from holdfast.errors import HoldfastError
from holdfast.model.summary import JobSummary

READ_SECONDS = 0.05  # then the database is read instead
WRITE_SECONDS = 1.0
COPY_BYTES_MAX = 32 * 1024  # of one job; a larger one is stored as a stamp only
MAC_CHARS, STAMP_CHARS = 32, 40

# Never replace a newer copy with an older one.
_NEWER = """
local there = redis.call('GET', KEYS[1])
if there and string.sub(there, 1, 40) > ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""

log = logging.getLogger(__name__)
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, JobSummary]).decode


def key_of(job_id: str) -> str:
    return f"holdfast:status:{job_id}"


class StatusCache:
    """Each copy is signed with a secret from the database: forged entries are ignored."""

    def __init__(
        self,
        redis: Any,
        breaker: Breaker,
        clock: Clock,
        *,
        seconds: float,
        secret: Callable[[], Coroutine[Any, Any, bytes]],
    ) -> None:
        self._redis, self._breaker, self._clock = redis, breaker, clock
        self.seconds = seconds
        self._secret, self._key = secret, b""
        self._reads: Batcher[str, Any] = Batcher(self._read)

    async def get(self, job_id: str, tenant: str) -> JobSummary | None:
        """The cached status; None if the database must be read."""
        if not self._breaker.allows:
            return None
        if (found := await self._reads.put(job_id)) is None:
            return None
        try:
            owner, outline = _decode(await self._verified(job_id, found))
        except HoldfastError:  # the secret cannot be read
            return None
        except ValueError:  # too large, truncated, forged, or of another version
            if len(found) != STAMP_CHARS:
                await self._forget(job_id)
            return None
        return msgspec.structs.replace(outline, now_at=self._clock.now()) if owner == tenant else None

    async def put(self, seen: Sequence[tuple[str, JobSummary, float]], read_at: float) -> bool:
        """Store (tenant, job, seconds to live), read at that monotonic time or later. Stale reads are not stored.

        False if nothing was stored."""
        if not self._breaker.allows or self._clock.monotonic() - read_at > WRITE_SECONDS:
            return False
        try:
            self._key = self._key or await self._secret()
        except HoldfastError:
            return False
        pipeline = self._redis.pipeline(transaction=False)
        for tenant, outline, seconds_to_live in seen:
            stamp = _stamp(outline)
            copy = stamp + self._signed(stamp, tenant, outline)
            pipeline.execute_command(
                "EVAL", _NEWER, 1, key_of(outline.id), stamp, copy, max(1, round(seconds_to_live * 1000))
            )
        return await reply_to(pipeline.execute(), self._breaker, WRITE_SECONDS) is not None

    def _signed(self, stamp: bytes, tenant: str, outline: JobSummary) -> bytes:
        body = _encode((tenant, outline))
        return b"" if len(body) > COPY_BYTES_MAX else self._mac(outline.id, stamp, body) + body

    async def _verified(self, job_id: str, copy: bytes) -> bytes:
        self._key = self._key or await self._secret()
        stamp, mac, body = copy[:STAMP_CHARS], copy[STAMP_CHARS:][:MAC_CHARS], copy[STAMP_CHARS + MAC_CHARS :]
        if not hmac.compare_digest(mac, self._mac(job_id, stamp, body)):
            raise ValueError("invalid signature")
        return body

    def _mac(self, job_id: str, stamp: bytes, body: bytes) -> bytes:
        return hmac.digest(self._key, b"%b %b %b" % (job_id.encode(), stamp, body), "sha256").hex().encode()[:MAC_CHARS]

    async def _forget(self, job_id: str) -> None:
        await reply_to(self._redis.delete(key_of(job_id)), self._breaker, READ_SECONDS)

    async def _read(self, job_ids: list[str]) -> Sequence[Any]:
        reading = self._redis.mget([key_of(job_id) for job_id in job_ids])
        found = await reply_to(reading, self._breaker, READ_SECONDS)
        return found or [None] * len(job_ids)


def _stamp(outline: JobSummary) -> bytes:
    """Of fixed length: the greater of two is the newer. The time covers changes that do not increase the version."""
    return b"%020d%020d" % (outline.version, to_micros(outline.updated_at))
