"""What a client sees of a job. An allow-list: what is not named here stays inside."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from holdfast.lifecycle import State
from holdfast.model.json import decode
from holdfast.model.reports import RAISED
from holdfast.model.summary import JobSummary
from holdfast.wire import ErrorView, JobView, PartProgress, ProgressView

_UNHAPPY = frozenset({State.DEAD, State.CANCELED, State.REJECTED})


def job_view(outline: JobSummary) -> JobView:
    canceled = outline.state is State.CANCELED
    return JobView(
        job_id=outline.id,
        job_type=outline.type,
        status=outline.status,
        created_at=outline.created_at,
        updated_at=outline.updated_at,
        subject=outline.subject,
        progress=_progress(outline),
        counters=None if outline.counters is None else _as_stored(outline.counters),  # type: ignore[arg-type]
        result=None if outline.result is None else _as_stored(outline.result),
        error=_error(outline) if outline.state in _UNHAPPY else None,
        canceled_at=outline.updated_at if canceled else None,  # its last change was its end
        partial=canceled and outline.started_at is not None,
        duration_seconds=_duration(outline),
        parts=None if outline.parts is None else [part_progress(part) for part in decode(outline.parts)],
    )


def part_progress(part: dict[str, Any]) -> PartProgress:
    """Not its data, nor what went wrong inside."""
    return PartProgress(part["name"], part["status"], *(part.get(name) for name in ("percent", "total", "done")))


def etag(outline: JobSummary) -> bytes:
    """Another one whenever the view is another. Weak: how many seconds are left is told anew each time.

    The number of events goes into it, and a client could count retries by that: so it is a digest.
    """
    told = f"{outline.id} {outline.version} {outline.updated_at.timestamp()!r}"
    return b'W/"%s"' % blake2b(told.encode(), digest_size=9).hexdigest().encode()


def _as_stored(text: str) -> msgspec.Raw:
    """It was checked when it was stored; taking it apart again would cost more than all the rest."""
    return msgspec.Raw(text.encode())


def _progress(outline: JobSummary) -> ProgressView | None:
    if outline.percent is None and outline.step is None and outline.eta_at is None:
        return None
    left = None
    if outline.eta_at is not None and outline.state is State.RUNNING:
        left = max(0.0, round((outline.eta_at - outline.now_at).total_seconds(), 3))
    return ProgressView(outline.percent, outline.step, left)


def _duration(outline: JobSummary) -> float | None:
    if not outline.final or outline.started_at is None:
        return None
    return (outline.updated_at - outline.started_at).total_seconds()  # its last change was its end


def _error(outline: JobSummary) -> ErrorView:
    """Its code and its message; the context, where a worker put its traceback, is for operators."""
    if outline.state is State.CANCELED:
        return ErrorView("canceled", "the job was canceled")
    error = decode(outline.error) if outline.error is not None else {}
    return ErrorView(str(error.get("code") or outline.reason or outline.state), _message(error))


def _message(error: dict[str, Any]) -> str:
    """The text of an exception that nobody raised on purpose may hold addresses and paths: it is for operators, too."""
    context = error.get("context")
    if isinstance(context, dict) and (raised := context.get(RAISED)) is not None:
        return f"the job failed with an unexpected error ({raised})"
    return str(error.get("message") or "")
