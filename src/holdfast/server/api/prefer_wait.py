"""`Prefer: wait=N`: waits for a change of a job, without holding a database connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.model.summary import JobSummary
from holdfast.server.http.route import Headers, HttpRequest
from holdfast.server.state import ServerState

SECONDS_MAX = 60
RECHECK_SECONDS = 2.5  # also without events: not every change is an event, and the key may be revoked

_WAIT = re.compile(rb'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=[,;]|$)', re.IGNORECASE)


def wait_seconds(headers: Headers) -> int:
    """The seconds in `Prefer: wait`; 0 if it is absent or malformed."""
    if (said := headers.get(b"prefer")) is None:
        return 0
    found = _WAIT.search(said)
    return min(SECONDS_MAX, int(found[1])) if found else 0


def applied(seconds: int) -> tuple[bytes, bytes]:
    return b"preference-applied", b"wait=%d" % seconds


async def read_job(server: ServerState, request: HttpRequest, job_id: str) -> JobSummary:
    return await server.summaries.put((job_id, request.caller.tenant))


async def wait_until(
    server: ServerState, request: HttpRequest, job_id: str, enough: Callable[[JobSummary], bool], seconds: float
) -> JobSummary:
    """The job when the condition holds, or when the time is up, the client disconnects or the server stops."""
    until = server.clock.monotonic() + seconds
    with server.interruptible(request.disconnected):
        while True:
            summary = await read_job(server, request, job_id)
            await server.auth.check_still_valid(request.caller)  # it may have been revoked meanwhile
            left = until - server.clock.monotonic()
            if left <= 0 or enough(summary) or request.disconnected.is_set():
                return summary
            news = server.feed.changed(job_id, min(left, RECHECK_SECONDS), seen=summary.version)
            await _first_of(news, request.disconnected.wait())


async def _first_of(*events: Coroutine[Any, Any, bool]) -> None:
    tasks = [asyncio.create_task(event) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
