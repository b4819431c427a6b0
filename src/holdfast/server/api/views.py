"""Converts jobs to response bodies for clients: an allow-list of fields."""

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


def job_view(summary: JobSummary) -> JobView:
    canceled = summary.state is State.CANCELED
    return JobView(
        job_id=summary.id,
        job_type=summary.type,
        status=summary.status,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        subject=summary.subject,
        progress=_progress(summary),
        counters=None if summary.counters is None else _as_stored(summary.counters),  # type: ignore[arg-type]
        result=None if summary.result is None else _as_stored(summary.result),
        error=_error(summary) if summary.state in _UNHAPPY else None,
        canceled_at=summary.updated_at if canceled else None,  # the last change was the end
        partial=canceled and summary.started_at is not None,
        duration_seconds=_duration(summary),
        parts=None if summary.parts is None else [part_progress(part) for part in decode(summary.parts)],
    )


def part_progress(part: dict[str, Any]) -> PartProgress:
    """Without data and error."""
    return PartProgress(part["name"], part["status"], *(part.get(name) for name in ("percent", "total", "done")))


def etag(summary: JobSummary) -> bytes:
    """Changes whenever the response changes. Weak: `etaSeconds` is computed for each request.

    A digest, because clients could count retries by the number of events in it.
    """
    text = f"{summary.id} {summary.version} {summary.updated_at.timestamp()!r}"
    return b'W/"%s"' % blake2b(text.encode(), digest_size=9).hexdigest().encode()


def _as_stored(text: str) -> msgspec.Raw:
    """Stored JSON is valid, so it is not parsed again."""
    return msgspec.Raw(text.encode())


def _progress(summary: JobSummary) -> ProgressView | None:
    if summary.percent is None and summary.step is None and summary.eta_at is None:
        return None
    left = None
    if summary.eta_at is not None and summary.state is State.RUNNING:
        left = max(0.0, round((summary.eta_at - summary.now_at).total_seconds(), 3))
    return ProgressView(summary.percent, summary.step, left)


def _duration(summary: JobSummary) -> float | None:
    if not summary.final or summary.started_at is None:
        return None
    return (summary.updated_at - summary.started_at).total_seconds()  # the last change was the end


def _error(summary: JobSummary) -> ErrorView:
    """Code and message; the context, which may have a traceback, is for operators."""
    if summary.state is State.CANCELED:
        return ErrorView("canceled", "the job was canceled")
    error = decode(summary.error) if summary.error is not None else {}
    return ErrorView(str(error.get("code") or summary.reason or summary.state), _message(error))


def _message(error: dict[str, Any]) -> str:
    """The text of an unexpected exception may contain addresses and paths, so it is for operators, too."""
    context = error.get("context")
    if isinstance(context, dict) and (raised := context.get(RAISED)) is not None:
        return f"the job failed with an unexpected error ({raised})"
    return str(error.get("message") or "")
