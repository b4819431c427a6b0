"""Formats events as server-sent events, and parses `Last-Event-ID`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.engine import Cursor
from holdfast.engine.maintenance.worker_events import VERB as WORKER
from holdfast.errors import Invalid
from holdfast.ids import is_uuid
from holdfast.lifecycle import FINAL, STATUS, State
from holdfast.model import Event
from holdfast.server.api.views import part_progress
from holdfast.server.live.feed import JobInfo
from holdfast.wire import JobEvent, OperatorEvent, StreamReset, WorkerEvent

_PLACE = re.compile(r"([0-9]{1,19})\.([0-9]{1,10})\.([0-9a-f-]{36})")
_NUMBER = re.compile(r"[0-9]{1,10}")
_encode = msgspec.json.Encoder().encode

AHEAD, PRUNED = "ahead", "pruned"  # reasons of a reset


def format_event(number: str, name: str, data: Any) -> bytes:
    """JSON contains no raw line breaks, so the data is one line."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (number.encode(), name.encode(), _encode(data))


def reset(number: str, reason: str) -> bytes:
    """Sent before a gap in the stream: the client should read the jobs again."""
    return format_event(number, "reset", StreamReset(reason))


def is_of_worker(event: Event) -> bool:
    return event.verb == WORKER


def is_final(event: Event) -> bool:
    return event.to_state is not None and State(event.to_state) in FINAL


def name_of(event: Event) -> str:
    """The verb of the event; `worker_status` for events of workers."""
    return "worker_status" if is_of_worker(event) else event.verb


def for_client(event: Event, about: JobInfo | None) -> JobEvent:
    """Without worker, attempt and error details."""
    counters = event.data if event.verb == "progress" else None
    parts = [part_progress(part) for part in event.data] if event.verb == "parts" else None
    return JobEvent.of(event, **_common(event, about), counters=counters, parts=parts)


def for_operator(event: Event, about: JobInfo | None) -> OperatorEvent | WorkerEvent:
    if is_of_worker(event):
        return WorkerEvent(event.job_id, event.at, str(event.reason), **event.data)
    return OperatorEvent.of(event, **_common(event, about), queue=about.queue if about else None)


def _common(event: Event, about: JobInfo | None) -> dict[str, Any]:
    return {
        "job_type": about.type if about else None,
        "subject": about.subject if about else None,
        "status": STATUS[State(event.to_state) if event.to_state else _implied_state(event)],
        "from_": _state_name(event.from_state, about),
        "to": _state_name(event.to_state, about),
    }


def _implied_state(event: Event) -> State:
    """Events without a transition are of running jobs, except `wake`."""
    return State.QUEUED if event.verb == "wake" else State.RUNNING


def _state_name(state: str | None, about: JobInfo | None) -> str | None:
    """The state name of the lifecycle, unless the job was pruned."""
    return state if state is None or about is None else about.words[State(state)]


# -- Last-Event-ID ---------------------------------------------------------------------------------------------


def position_text(position: Cursor) -> str:
    return f"{position.pos}.{position.seq}.{position.job_id}"


def parse_position(text: str) -> Cursor:
    found = _PLACE.fullmatch(text)
    if found is None or not is_uuid(found[3]) or int(found[1]) >= 2**63 or int(found[2]) >= 2**31:
        raise unknown_event_id()
    return Cursor(int(found[1]), found[3], int(found[2]))


def parse_seq(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) >= 2**31:
        raise unknown_event_id()
    return int(text)


def unknown_event_id() -> Invalid:
    return Invalid("this Last-Event-ID is not from this stream; leave it out to start from now", code="invalid_cursor")
