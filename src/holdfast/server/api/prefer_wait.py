"""`Prefer: wait=N`: an answer that may take a while, if that makes it a better one. No connection waits with it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.model.summary import JobSummary
from holdfast.server.http.route import Headers, HttpRequest
from holdfast.server.state import ServerState

SECONDS_MAX = 60
LOOK_SECONDS = 2.5  # also without news: not all that a view shows is an event, and a key may be taken back

_WAIT = re.compile(rb'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=[,;]|$)', re.IGNORECASE)


def patience(headers: Headers) -> int:
    """The seconds that the client would wait; 0 where it says nothing, or nothing that can be understood."""
    found = _WAIT.search(headers.get(b"prefer", b""))
    return min(SECONDS_MAX, int(found[1])) if found else 0


def applied(seconds: int) -> tuple[bytes, bytes]:
    return b"preference-applied", b"wait=%d" % seconds


async def look(server: ServerState, request: HttpRequest, job_id: str) -> JobSummary:
    return await server.summaries.put((job_id, request.caller.tenant))


async def look_until(
    server: ServerState, request: HttpRequest, job_id: str, enough: Callable[[JobSummary], bool], seconds: float
) -> JobSummary:
    """The job once it is as wanted; or as it is when time is up, the client has gone or the server stops."""
    until = server.clock.monotonic() + seconds
    with server.interruptible(request.disconnected):
        while True:
            outline = await look(server, request, job_id)
            await server.auth.check_still_valid(request.caller)  # it may have waited for long
            left = until - server.clock.monotonic()
            if left <= 0 or enough(outline) or request.disconnected.is_set():
                return outline
            news = server.feed.changed(job_id, min(left, LOOK_SECONDS), seen=outline.version)
            await _first_of(news, request.disconnected.wait())


async def _first_of(*events: Coroutine[Any, Any, bool]) -> None:
    tasks = [asyncio.create_task(event) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
