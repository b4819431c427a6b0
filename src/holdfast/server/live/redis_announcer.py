"""Publishes job and worker events on Redis channels; one server does it for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.clock import Clock
from holdfast.dispatch.redis_pubsub import COMPLETE, PROGRESS, WORKER_STATUS, RedisPubSub
from holdfast.errors import HoldfastError
from holdfast.lifecycle import STATUS, State
from holdfast.model import Event
from holdfast.server.live import sse
from holdfast.server.live.event_buffer import BufferedEvent
from holdfast.server.live.feed import EVERYTHING, EventFeed, JobInfo

ASK_SECONDS = 1.0  # interval of checking for subscribers


class RedisAnnouncer:
    """Reads the event feed only while there are subscribers."""

    def __init__(self, live: RedisPubSub, feed: EventFeed, clock: Clock) -> None:
        self._live, self._feed, self._clock = live, feed, clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(ASK_SECONDS)
            try:
                if await self._live.is_publisher():
                    await self._announce()
            except HoldfastError:  # without the database there is nothing to publish
                continue

    async def _announce(self) -> None:
        position = await self._feed.end()
        watch = await self._feed.watch(EVERYTHING)
        asked_at = self._clock.monotonic()
        try:
            while True:
                await watch.wait(self._clock, ASK_SECONDS)
                watch.take()
                at_end = False
                while not at_end:
                    entries, position, at_end = await self._feed.read_after(position, EVERYTHING)
                    await self._publish(entries)
                if (now := self._clock.monotonic()) - asked_at >= ASK_SECONDS:
                    asked_at = now
                    if not await self._live.is_publisher():
                        return
        finally:
            self._feed.leave(watch)

    async def _publish(self, entries: list[BufferedEvent]) -> None:
        events = [entry.event for entry in entries if _is_announced(entry.event)]
        about = await self._feed.about({event.job_id for event in events if not sse.is_of_worker(event)})
        words = [_message(event, about.get(event.job_id)) for event in events]
        if words:
            await self._live.publish(words)


def _is_announced(event: Event) -> bool:
    return sse.is_of_worker(event) or sse.is_final(event) or event.verb == "progress"


def _message(event: Event, about: JobInfo | None) -> tuple[str, Mapping[str, Any]]:
    """Ids, status and progress, without payload and result."""
    if sse.is_of_worker(event):
        return WORKER_STATUS, {"workerId": event.job_id, "status": event.reason, "at": event.at}
    name = about.subject if about is not None and about.subject is not None else event.job_id
    said = {"jobId": event.job_id, "tenant": event.tenant, "seq": event.seq, "at": event.at}
    if about is not None:
        said |= {"jobType": about.type} | ({} if about.subject is None else {"subject": about.subject})
    if sse.is_final(event):
        return COMPLETE + name, {**said, "status": STATUS[State(event.to_state or "")]}
    return PROGRESS + name, {**said, "status": "RUNNING", "percent": event.percent, "step": event.step}
