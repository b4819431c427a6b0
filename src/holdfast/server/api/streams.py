"""Live: the event log as server-sent events, of one job or of all, resumable by the id of the last event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable

from holdfast.errors import StoreError, TooMany, Unauthorized
from holdfast.lifecycle import FINAL
from holdfast.server.auth.authenticator import Caller
from holdfast.server.http.route import HttpRequest, Reply, Stream
from holdfast.server.live import feed as feeds
from holdfast.server.live import sse
from holdfast.server.live.event_buffer import BufferedEvent, LogPosition
from holdfast.server.live.feed import FeedWatcher, JobInfo
from holdfast.server.live.stream_readers import (
    JobStreamReader,
    LogStreamReader,
    StreamReader,
    client_text,
    operator_text,
)
from holdfast.server.state import ServerState
from holdfast.wire import Body

STREAMS_PER_KEY = 50
CHECK_SECONDS = 2.5  # so often is a key looked at again; what the answer is made of is at most as old once more
UNCHECKED_SECONDS_MAX = 60.0  # while the database cannot be asked
HEADERS = ((b"x-accel-buffering", b"no"),)  # a proxy that collects events would make them late


class StreamQuery(Body):
    job_type: str | None = None
    queue: str | None = None


class OperatorStreamQuery(Body):
    tenant: str | None = None


async def of_job(server: ServerState, request: HttpRequest) -> Reply | Stream:
    """From its first event, or behind the last one seen, to its final one."""
    seen = _last_event_id(request)
    after = sse.parse_seq(seen) if seen else 0
    job = await server.engine.reads.get(request.path["job_id"], tenant=request.caller.tenant)
    reset = sse.AHEAD if after > job.version else None  # the database was restored since: all of it again
    after = 0 if reset else after
    if after == job.version and job.state in FINAL:
        return Reply(204)  # all is said; a browser that hears this does not come back
    about = (await server.feed.about([job.id])).get(job.id)
    return await _opened(
        server,
        request,
        feeds.of_job(job.id),
        lambda watch: JobStreamReader(server.feed, watch, job.id, after, about, reset),
    )


async def of_all(server: ServerState, request: HttpRequest) -> Reply | Stream:
    """What happens to the caller's jobs: from now on, or behind the last event seen."""
    query: StreamQuery = request.query

    def is_wanted(line: BufferedEvent, about: JobInfo | None) -> bool:
        if sse.is_of_worker(line.event):  # whatever a tenant is called
            return False
        if query.job_type is None and query.queue is None:
            return True
        return about is not None and query.job_type in (None, about.type) and query.queue in (None, about.queue)

    key = feeds.of_tenant(request.caller.tenant)
    position, reset = await _begin(server, request)
    return await _opened(
        server, request, key, lambda watch: LogStreamReader(server.feed, watch, position, is_wanted, client_text, reset)
    )


async def for_operators(server: ServerState, request: HttpRequest) -> Reply | Stream:
    """Everything there is to know of the jobs of all tenants, or of one, and of the workers."""
    tenant = request.query.tenant

    def is_wanted(line: BufferedEvent, about: JobInfo | None) -> bool:
        return tenant is None or line.event.tenant == tenant or sse.is_of_worker(line.event)

    position, reset = await _begin(server, request)
    return await _opened(
        server,
        request,
        feeds.EVERYTHING,
        lambda watch: LogStreamReader(server.feed, watch, position, is_wanted, operator_text, reset),
    )


def _last_event_id(request: HttpRequest) -> str:
    return request.headers.get(b"last-event-id", b"").decode("latin-1")


async def _begin(server: ServerState, request: HttpRequest) -> tuple[LogPosition, str | None]:
    """Where to go on, and why events may be missing before that, if they may."""
    seen = _last_event_id(request)
    if not seen:
        return feeds.after_all_of(await server.feed.end()), None
    position, extent = sse.parse_position(seen), await server.engine.reads.log_extent()
    if position[0] >= extent.beyond:
        return feeds.after_all_of(await server.feed.end()), sse.AHEAD
    return position, sse.PRUNED if position[0] < extent.pruned else None


# -- a stream --------------------------------------------------------------------------------------------------


async def _opened(
    server: ServerState, request: HttpRequest, key: feeds.Key, news_for: Callable[[FeedWatcher], StreamReader]
) -> Stream:
    caller, count = request.caller, server.streams
    mine = STREAMS_PER_KEY if caller.kind is not None else server.settings.sse_streams_max
    if count[caller.name] >= mine or count.total() >= server.settings.sse_streams_max:
        raise TooMany("too many streams are open; close some", retry_after=5, code="too_many_streams")
    count[caller.name] += 1
    try:
        watch = await server.feed.watch(key)
    except BaseException:
        _leave(server, caller)
        raise
    return Stream(EventChunks(server, caller, watch, news_for(watch)), HEADERS)


def _leave(server: ServerState, caller: Caller) -> None:
    server.streams[caller.name] -= 1
    if not server.streams[caller.name]:
        del server.streams[caller.name]


class EventChunks(AsyncIterator[bytes]):
    """What is sent, until there is nothing more to say or to whom; must be closed, also if it never began."""

    def __init__(self, server: ServerState, caller: Caller, watch: FeedWatcher, news: StreamReader) -> None:
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
        yield b"retry: %d\n" % (settings.sse_retry_seconds * 1000) + (news.start() or b"\n")
        said = clock.monotonic()
        while await self._may_go_on():
            if chunk := await news.next():
                yield chunk
                said = clock.monotonic()
                await clock.sleep(0)  # others too want to say something
            if news.ended:
                return
            if news.at_end():
                left = said + settings.sse_heartbeat_seconds - clock.monotonic()
                await self._watch.wait(clock, min(left, CHECK_SECONDS))
            if clock.monotonic() - said >= settings.sse_heartbeat_seconds:
                yield news.heartbeat()
                said = clock.monotonic()

    async def _may_go_on(self) -> bool:
        """Is the key that began this good yet? A database that is away for a while changes nothing about that."""
        now = self._server.clock.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return True
        try:
            await self._server.auth.check_still_valid(self._caller)
            self._checked = now
        except Unauthorized:
            return False
        except StoreError:
            return now - self._checked < UNCHECKED_SECONDS_MAX
        return True
