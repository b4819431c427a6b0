"""Event stream routes: server-sent events of one job or all jobs, resumable with `Last-Event-ID`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable

from holdfast.engine import Cursor
from holdfast.errors import StoreError, TooMany, Unauthorized
from holdfast.lifecycle import FINAL
from holdfast.server.auth.authenticator import Caller
from holdfast.server.http.route import HttpRequest, Reply, Stream
from holdfast.server.live import feed as feeds
from holdfast.server.live import sse
from holdfast.server.live.event_buffer import BufferedEvent
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
CHECK_SECONDS = 2.5  # interval of checking the key again, which may be cached for as long
UNCHECKED_SECONDS_MAX = 60.0  # while the database is unavailable
HEADERS = ((b"x-accel-buffering", b"no"),)  # tell proxies not to buffer events


class StreamQuery(Body):
    job_type: str | None = None
    queue: str | None = None


class OperatorStreamQuery(Body):
    tenant: str | None = None


async def of_job(server: ServerState, request: HttpRequest) -> Reply | Stream:
    return await job_events(server, request, request.path["job_id"])


async def job_events(server: ServerState, request: HttpRequest, job_id: str) -> Reply | Stream:
    """Of a job of the caller's tenant, from the first event, or after `Last-Event-ID`, to the final one."""
    seen = _last_event_id(request)
    after = sse.parse_seq(seen) if seen else 0
    job = await server.engine.reads.get(job_id, tenant=request.caller.tenant)
    reset = sse.AHEAD if after > job.version else None  # the database was restored: start from the first event
    after = 0 if reset else after
    if after == job.version and job.state in FINAL:
        return Reply(204)  # the stream is complete: 204 stops a browser from reconnecting
    about = (await server.feed.about([job.id])).get(job.id)
    return await _open_stream(
        server,
        request,
        feeds.of_job(job.id),
        lambda watch: JobStreamReader(server.feed, watch, job.id, after, about, reset),
    )


async def of_all(server: ServerState, request: HttpRequest) -> Reply | Stream:
    """Events of the caller's tenant: from now on, or after `Last-Event-ID`."""
    query: StreamQuery = request.query

    def is_wanted(entry: BufferedEvent, about: JobInfo | None) -> bool:
        if sse.is_of_worker(entry.event):  # whatever the tenant is called
            return False
        if query.job_type is None and query.queue is None:
            return True
        return about is not None and query.job_type in (None, about.type) and query.queue in (None, about.queue)

    key = feeds.of_tenant(request.caller.tenant)
    position, reset = await _begin(server, request)
    return await _open_stream(
        server, request, key, lambda watch: LogStreamReader(server.feed, watch, position, is_wanted, client_text, reset)
    )


async def for_operators(server: ServerState, request: HttpRequest) -> Reply | Stream:
    """Events of the jobs of all tenants, or of one, and of the workers."""
    tenant = request.query.tenant

    def is_wanted(entry: BufferedEvent, about: JobInfo | None) -> bool:
        return tenant is None or entry.event.tenant == tenant or sse.is_of_worker(entry.event)

    position, reset = await _begin(server, request)
    return await _open_stream(
        server,
        request,
        feeds.EVERYTHING,
        lambda watch: LogStreamReader(server.feed, watch, position, is_wanted, operator_text, reset),
    )


def _last_event_id(request: HttpRequest) -> str:
    return request.headers.get(b"last-event-id", b"").decode("latin-1")


async def _begin(server: ServerState, request: HttpRequest) -> tuple[Cursor, str | None]:
    """The position to continue from, and the reason of a reset if events may be missing."""
    seen = _last_event_id(request)
    if not seen:
        return feeds.after_all_of(await server.feed.end()), None
    position, extent = sse.parse_position(seen), await server.engine.reads.log_extent()
    if position.pos >= extent.beyond:
        return feeds.after_all_of(await server.feed.end()), sse.AHEAD
    return position, sse.PRUNED if position.pos < extent.pruned else None


# -- a stream --------------------------------------------------------------------------------------------------


async def _open_stream(
    server: ServerState, request: HttpRequest, key: feeds.Key, reader_for: Callable[[FeedWatcher], StreamReader]
) -> Stream:
    caller, count = request.caller, server.streams
    mine = STREAMS_PER_KEY if caller.kind is not None else server.settings.sse_streams_max
    if count[caller.name] >= mine or count.total() >= server.settings.sse_streams_max:
        raise TooMany("too many streams are open; close some", retry_after=5, code="too_many_streams")
    count[caller.name] += 1
    try:
        watch = await server.feed.watch(key)
    except BaseException:
        _close_stream(server, caller)
        raise
    return Stream(EventChunks(server, caller, watch, reader_for(watch)), HEADERS)


def _close_stream(server: ServerState, caller: Caller) -> None:
    server.streams[caller.name] -= 1
    if not server.streams[caller.name]:
        del server.streams[caller.name]


class EventChunks(AsyncIterator[bytes]):
    """The chunks of a stream until it ends or the key is revoked; must be closed, even if never started."""

    def __init__(self, server: ServerState, caller: Caller, watch: FeedWatcher, reader: StreamReader) -> None:
        self._server, self._caller, self._watch, self._reader = server, caller, watch, reader
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
            _close_stream(self._server, self._caller)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        clock, reader, settings = self._server.clock, self._reader, self._server.settings
        yield b"retry: %d\n" % (settings.sse_retry_seconds * 1000) + (reader.start() or b"\n")
        said = clock.monotonic()
        while await self._still_authorized():
            if chunk := await reader.next():
                yield chunk
                said = clock.monotonic()
                await clock.sleep(0)  # let other streams run
            if reader.ended:
                return
            if reader.at_end():
                left = said + settings.sse_heartbeat_seconds - clock.monotonic()
                await self._watch.wait(clock, min(left, CHECK_SECONDS))
            if clock.monotonic() - said >= settings.sse_heartbeat_seconds:
                yield reader.heartbeat()
                said = clock.monotonic()

    async def _still_authorized(self) -> bool:
        """Whether the key is still valid; a short database outage does not end the stream."""
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
