"""What a stream says next: each has its own place in the log, and pulls from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.server.live import feed as feeds
from holdfast.server.live import sse
from holdfast.server.live.event_buffer import BufferedEvent, LogPosition
from holdfast.server.live.feed import EventFeed, FeedWatcher, JobInfo


class StreamReader(Protocol):
    over: bool  # nothing more will come

    def hello(self) -> bytes: ...

    async def next(self) -> bytes:
        """Empty when there is nothing new."""
        ...

    def at_end(self) -> bool: ...

    def heartbeat(self) -> bytes: ...


class JobStreamReader:
    """Places are the numbers of the job's events, which have no gaps."""

    def __init__(
        self,
        feed: EventFeed,
        watch: FeedWatcher,
        job_id: str,
        after: int,
        about: JobInfo | None,
        reset: str | None = None,
    ) -> None:
        self._feed, self._watch, self._job_id = feed, watch, job_id
        self._after, self._about, self._reset = after, about, reset
        self._replayed = False
        self.over = False

    def hello(self) -> bytes:
        return b"" if self._reset is None else sse.reset(str(self._after), self._reset)

    async def next(self) -> bytes:
        behind = self._watch.take()
        if self._replayed and behind is None:
            return b""
        events = await self._feed.of_job(self._job_id, self._after, behind if self._replayed else None)
        self._replayed = len(events) < feeds.PULL
        if events:
            self._after, self.over = events[-1].seq, sse.is_over(events[-1])
        return b"".join(
            sse.written(str(event.seq), sse.name_of(event), sse.for_client(event, self._about)) for event in events
        )

    def at_end(self) -> bool:
        return self._replayed

    def heartbeat(self) -> bytes:
        return b":\n\n"


class LogStreamReader:
    """Places are those of the log. A client that comes back begins behind the last one it was told of."""

    over = False

    def __init__(
        self,
        feed: EventFeed,
        watch: FeedWatcher,
        place: LogPosition,
        is_wanted: Callable[[BufferedEvent, JobInfo | None], bool],
        text: Callable[[BufferedEvent, JobInfo | None], bytes],
        reset: str | None = None,
    ) -> None:
        self._feed, self._watch = feed, watch
        self._place, self._told, self._reset = place, place, reset
        self._replaced = feed.replaced
        self._is_wanted, self._text = is_wanted, text
        self._at_end = False

    def hello(self) -> bytes:
        """With a place, so that nothing is missed by whoever is cut off before the first event."""
        return self._tell_place() if self._reset is None else self._say_reset(self._reset)

    def _say_reset(self, reason: str) -> bytes:
        return sse.reset(sse.place_text(self._told), reason)

    async def next(self) -> bytes:
        behind = self._watch.take()
        if self._replaced != self._feed.replaced:
            self._replaced = self._feed.replaced
            self._place = self._told = self._feed.last
            return self._say_reset(sse.AHEAD)
        if self._at_end and behind is not None:
            self._place = max(self._place, behind)  # what came before was for others
        lines, self._place, self._at_end = await self._feed.behind(self._place, self._watch.key)
        if not lines:
            return b""
        about = await self._feed.about({line.event.job_id for line in lines if not sse.is_of_worker(line.event)})
        wanted = [line for line in lines if self._is_wanted(line, about.get(line.event.job_id))]
        self._told = wanted[-1].place if wanted else self._told
        return b"".join(self._text(line, about.get(line.event.job_id)) for line in wanted)

    def at_end(self) -> bool:
        return self._at_end

    def heartbeat(self) -> bytes:
        """With how far we have read, so that whoever comes back need not read through what was for others."""
        if self._at_end:
            self._place = self._feed.quiet_until(self._watch, self._place)
        self._told = max(self._told, feeds.before_all_of(self._place))
        return b":\n" + self._tell_place()

    def _tell_place(self) -> bytes:
        return b"id: %b\n\n" % sse.place_text(self._told).encode()


def client_text(line: BufferedEvent, about: JobInfo | None) -> bytes:
    """The same for all clients who see it, so it is made once."""
    if line.text is None:
        data = sse.for_client(line.event, about)
        line.text = sse.written(sse.place_text(line.place), sse.name_of(line.event), data)
    return line.text


def operator_text(line: BufferedEvent, about: JobInfo | None) -> bytes:
    return sse.written(sse.place_text(line.place), sse.name_of(line.event), sse.for_operator(line.event, about))
