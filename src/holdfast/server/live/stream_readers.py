"""Readers of event streams: each has its own position in the event log and reads from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.engine import Cursor
from holdfast.server.live import feed as feeds
from holdfast.server.live import sse
from holdfast.server.live.event_buffer import BufferedEvent
from holdfast.server.live.feed import EventFeed, FeedWatcher, JobInfo


class StreamReader(Protocol):
    ended: bool  # the stream is complete

    def start(self) -> bytes: ...

    async def next(self) -> bytes:
        """Empty if there is nothing new."""
        ...

    def at_end(self) -> bool: ...

    def heartbeat(self) -> bytes: ...


class JobStreamReader:
    """Positions are the numbers of the job's events, which have no gaps."""

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
        self.ended = False

    def start(self) -> bytes:
        return b"" if self._reset is None else sse.reset(str(self._after), self._reset)

    async def next(self) -> bytes:
        since = self._watch.take()
        if self._replayed and since is None:
            return b""
        events = await self._feed.of_job(self._job_id, self._after, since if self._replayed else None)
        self._replayed = len(events) < feeds.PULL
        if events:
            self._after, self.ended = events[-1].seq, sse.is_final(events[-1])
        return b"".join(
            sse.format_event(str(event.seq), sse.name_of(event), sse.for_client(event, self._about)) for event in events
        )

    def at_end(self) -> bool:
        return self._replayed

    def heartbeat(self) -> bytes:
        return b":\n\n"


class LogStreamReader:
    """Positions are those of the event log. A reconnecting client continues after the last one it received."""

    ended = False

    def __init__(
        self,
        feed: EventFeed,
        watch: FeedWatcher,
        position: Cursor,
        is_wanted: Callable[[BufferedEvent, JobInfo | None], bool],
        text: Callable[[BufferedEvent, JobInfo | None], bytes],
        reset: str | None = None,
    ) -> None:
        self._feed, self._watch = feed, watch
        self._position, self._sent, self._reset = position, position, reset
        self._replaced = feed.replaced
        self._is_wanted, self._text = is_wanted, text
        self._at_end = False

    def start(self) -> bytes:
        """With a position, so that a client that disconnects before the first event misses nothing."""
        return self._position_comment() if self._reset is None else self._reset_event(self._reset)

    def _reset_event(self, reason: str) -> bytes:
        return sse.reset(sse.position_text(self._sent), reason)

    async def next(self) -> bytes:
        since = self._watch.take()
        if self._replaced != self._feed.replaced:
            self._replaced = self._feed.replaced
            self._position = self._sent = self._feed.last
            return self._reset_event(sse.AHEAD)
        if self._at_end and since is not None:
            self._position = max(self._position, since)  # earlier events were for other streams
        entries, self._position, self._at_end = await self._feed.read_after(self._position, self._watch.key)
        if not entries:
            return b""
        about = await self._feed.about({entry.event.job_id for entry in entries if not sse.is_of_worker(entry.event)})
        wanted = [entry for entry in entries if self._is_wanted(entry, about.get(entry.event.job_id))]
        self._sent = wanted[-1].position if wanted else self._sent
        return b"".join(self._text(entry, about.get(entry.event.job_id)) for entry in wanted)

    def at_end(self) -> bool:
        return self._at_end

    def heartbeat(self) -> bytes:
        """With the current position, so that a reconnecting client skips events of other streams."""
        if self._at_end:
            self._position = self._feed.quiet_until(self._watch, self._position)
        self._sent = max(self._sent, feeds.before_all_of(self._position))
        return b":\n" + self._position_comment()

    def _position_comment(self) -> bytes:
        return b"id: %b\n\n" % sse.position_text(self._sent).encode()


def client_text(entry: BufferedEvent, about: JobInfo | None) -> bytes:
    """The same for all clients, so it is encoded once."""
    if entry.text is None:
        data = sse.for_client(entry.event, about)
        entry.text = sse.format_event(sse.position_text(entry.position), sse.name_of(entry.event), data)
    return entry.text


def operator_text(entry: BufferedEvent, about: JobInfo | None) -> bytes:
    return sse.format_event(
        sse.position_text(entry.position), sse.name_of(entry.event), sse.for_operator(entry.event, about)
    )
