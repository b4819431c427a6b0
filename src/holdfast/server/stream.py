"""Live: the event log as server-sent events, of one job or of all, resumable by the id of the last event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol

from holdfast.errors import StoreError, TooMany, Unauthorized
from holdfast.lifecycle import FINAL
from holdfast.server import feed as feeds
from holdfast.server import sse
from holdfast.server.auth import Caller
from holdfast.server.feed import About, Watch
from holdfast.server.ring import Line, Place
from holdfast.server.route import Asked, Reply, Stream
from holdfast.server.server import Server
from holdfast.wire import Body

STREAMS_PER_KEY = 50
CHECK_SECONDS = 2.5  # so often is a key looked at again; what the answer is made of is at most as old once more
UNCHECKED_SECONDS_MAX = 60.0  # while the database cannot be asked
HEADERS = ((b"x-accel-buffering", b"no"),)  # a proxy that collects events would make them late


class EventsQuery(Body):
    job_type: str | None = None
    queue: str | None = None


class OperatorEventsQuery(Body):
    tenant: str | None = None


async def of_job(server: Server, asked: Asked) -> Reply | Stream:
    """From its first event, or behind the last one seen, to its final one."""
    seen = _last_event_id(asked)
    after = sse.number_of(seen) if seen else 0
    job = await server.engine.get(asked.path["job_id"], tenant=asked.caller.tenant)
    if after > job.version:
        raise sse.not_given_out()
    if after == job.version and job.state in FINAL:
        return Reply(204)  # all is said; a browser that hears this does not come back
    about = (await server.feed.about([job.id])).get(job.id)
    return await _opened(server, asked, feeds.of_job(job.id), lambda watch: OfJob(server, watch, job.id, after, about))


async def of_all(server: Server, asked: Asked) -> Reply | Stream:
    """What happens to the caller's jobs: from now on, or behind the last event seen."""
    query: EventsQuery = asked.query

    def is_wanted(line: Line, about: About | None) -> bool:
        if sse.is_of_worker(line.event):  # whatever a tenant is called
            return False
        if query.job_type is None and query.queue is None:
            return True
        return about is not None and query.job_type in (None, about.type) and query.queue in (None, about.queue)

    key = feeds.of_tenant(asked.caller.tenant)
    place = await _begin(server, asked)
    return await _opened(server, asked, key, lambda watch: OfAll(server, watch, place, is_wanted, _client_text))


async def for_operators(server: Server, asked: Asked) -> Reply | Stream:
    """Everything there is to know of the jobs of all tenants, or of one, and of the workers."""
    tenant = asked.query.tenant

    def is_wanted(line: Line, about: About | None) -> bool:
        return tenant is None or line.event.tenant == tenant or sse.is_of_worker(line.event)

    place = await _begin(server, asked)
    return await _opened(
        server, asked, feeds.EVERYTHING, lambda watch: OfAll(server, watch, place, is_wanted, _operator_text)
    )


def _last_event_id(asked: Asked) -> str:
    return asked.headers.get(b"last-event-id", b"").decode("latin-1")


async def _begin(server: Server, asked: Asked) -> Place:
    seen = _last_event_id(asked)
    return sse.place_of(seen) if seen else feeds.behind_all_of(await server.feed.end())


def _client_text(line: Line, about: About | None) -> bytes:
    """The same for all clients who see it, so it is made once."""
    if line.text is None:
        data = sse.for_client(line.event, about)
        line.text = sse.written(sse.place_text(line.place), sse.name_of(line.event), data)
    return line.text


def _operator_text(line: Line, about: About | None) -> bytes:
    return sse.written(sse.place_text(line.place), sse.name_of(line.event), sse.for_operator(line.event, about))


# -- what a stream says ----------------------------------------------------------------------------------------


class News(Protocol):
    """One stream's own place in the log; whatever it says next is pulled from there."""

    over: bool

    def hello(self) -> bytes: ...

    async def next(self) -> bytes:
        """Empty when there is nothing new."""
        ...

    def at_end(self) -> bool: ...

    def heartbeat(self) -> bytes: ...


class OfJob:
    """Places are the numbers of the job's events, which have no gaps."""

    def __init__(self, server: Server, watch: Watch, job_id: str, after: int, about: About | None) -> None:
        self._feed, self._watch, self._job_id = server.feed, watch, job_id
        self._after, self._about = after, about
        self._replayed = False
        self.over = False

    def hello(self) -> bytes:
        return b""

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


class OfAll:
    """Places are those of the log. A client that comes back begins behind the last one it was told of."""

    over = False

    def __init__(
        self,
        server: Server,
        watch: Watch,
        place: Place,
        is_wanted: Callable[[Line, About | None], bool],
        text: Callable[[Line, About | None], bytes],
    ) -> None:
        self._feed, self._watch = server.feed, watch
        self._place, self._told = place, place
        self._is_wanted, self._text = is_wanted, text
        self._at_end = False

    def hello(self) -> bytes:
        """With a place, so that nothing is missed by whoever is cut off before the first event."""
        return self._tell_place()

    async def next(self) -> bytes:
        behind = self._watch.take()
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


# -- a stream --------------------------------------------------------------------------------------------------


async def _opened(server: Server, asked: Asked, key: feeds.Key, news_for: Callable[[Watch], News]) -> Stream:
    caller, count = asked.caller, server.streams
    mine = STREAMS_PER_KEY if caller.kind is not None else server.settings.sse_streams_max
    if count[caller.name] >= mine or count.total() >= server.settings.sse_streams_max:
        raise TooMany("too many streams are open; close some", retry_after=5, code="too_many_streams")
    count[caller.name] += 1
    try:
        watch = await server.feed.watch(key)
    except BaseException:
        _leave(server, caller)
        raise
    return Stream(Chunks(server, caller, watch, news_for(watch)), HEADERS)


def _leave(server: Server, caller: Caller) -> None:
    server.streams[caller.name] -= 1
    if not server.streams[caller.name]:
        del server.streams[caller.name]


class Chunks(AsyncIterator[bytes]):
    """What is sent, until there is nothing more to say or to whom; must be closed, also if it never began."""

    def __init__(self, server: Server, caller: Caller, watch: Watch, news: News) -> None:
        self._server, self._caller, self._watch, self._news = server, caller, watch, news
        self._live = self._chunks()
        self._checked = server.clock.monotonic()
        self._open = True

    async def __anext__(self) -> bytes:
        return await self._live.__anext__()

    async def aclose(self) -> None:
        await self._live.aclose()
        if self._open:
            self._open = False
            self._server.feed.leave(self._watch)
            _leave(self._server, self._caller)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        clock, news, settings = self._server.clock, self._news, self._server.settings
        yield b"retry: %d\n" % (settings.sse_retry_seconds * 1000) + (news.hello() or b"\n")
        said = clock.monotonic()
        while await self._may_go_on():
            if chunk := await news.next():
                yield chunk
                said = clock.monotonic()
                await clock.sleep(0)  # others too want to say something
            if news.over:
                return
            if news.at_end():
                left = said + settings.sse_heartbeat_seconds - clock.monotonic()
                await self._watch.rung(clock, min(left, CHECK_SECONDS))
            if clock.monotonic() - said >= settings.sse_heartbeat_seconds:
                yield news.heartbeat()
                said = clock.monotonic()

    async def _may_go_on(self) -> bool:
        """Is the key that began this good yet? A database that is away for a while changes nothing about that."""
        now = self._server.clock.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return True
        try:
            await self._server.auth.still(self._caller)
            self._checked = now
        except Unauthorized:
            return False
        except StoreError:
            return now - self._checked < UNCHECKED_SECONDS_MAX
        return True
