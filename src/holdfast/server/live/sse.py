"""An event as text: names, ids and one line of JSON, in the form that browsers read (server-sent events)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.engine.maintenance.worker_events import VERB as WORKER
from holdfast.errors import Invalid
from holdfast.ids import is_uuid
from holdfast.lifecycle import FINAL, STATUS, State
from holdfast.model import Event
from holdfast.server.api.views import part_progress
from holdfast.server.live.event_buffer import LogPosition
from holdfast.server.live.feed import JobInfo
from holdfast.wire import JobEvent, OperatorEvent, StreamReset, WorkerEvent

_PLACE = re.compile(r"([0-9]{1,19})\.([0-9]{1,10})\.([0-9a-f-]{36})")
_NUMBER = re.compile(r"[0-9]{1,10}")
_encode = msgspec.json.Encoder().encode

AHEAD, PRUNED = "ahead", "pruned"  # why events may be missing


def written(number: str, name: str, data: Any) -> bytes:
    """Nothing in the data can end its line: JSON has no line breaks of its own, and those in texts are escaped."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (number.encode(), name.encode(), _encode(data))


def reset(number: str, reason: str) -> bytes:
    """Said before what may be missing: whoever keeps a picture of the jobs should read them anew."""
    return written(number, "reset", StreamReset(reason))


def is_of_worker(event: Event) -> bool:
    return event.verb == WORKER


def is_over(event: Event) -> bool:
    return event.to_state is not None and State(event.to_state) in FINAL


def name_of(event: Event) -> str:
    """The verb, so that `complete` is told of success alone; `worker_status` where it is about a worker."""
    return "worker_status" if is_of_worker(event) else event.verb


def for_client(event: Event, about: JobInfo | None) -> JobEvent:
    """Never who ran it, how often, or what went wrong inside."""
    counters = event.data if event.verb == "progress" else None
    parts = [part_progress(part) for part in event.data] if event.verb == "parts" else None
    return JobEvent(**_common(event, about), counters=counters, parts=parts)


def for_operator(event: Event, about: JobInfo | None) -> OperatorEvent | WorkerEvent:
    if is_of_worker(event):
        return WorkerEvent(event.job_id, event.at, str(event.reason), **event.data)
    return OperatorEvent(
        **_common(event, about),
        tenant=event.tenant,
        queue=about.queue if about else None,
        attempt=event.attempt,
        epoch=event.epoch,
        actor=event.actor,
        worker_id=event.worker_id,
        data=event.data,
    )


def _common(event: Event, about: JobInfo | None) -> dict[str, Any]:
    return {
        "job_id": event.job_id,
        "seq": event.seq,
        "at": event.at,
        "verb": event.verb,
        "job_type": about.type if about else None,
        "subject": about.subject if about else None,
        "status": STATUS[State(event.to_state) if event.to_state else _unmoved(event)],
        "from_": _word(event.from_state, about),
        "to": _word(event.to_state, about),
        "reason": event.reason,
        "percent": event.percent,
        "step": event.step,
    }


def _unmoved(event: Event) -> State:
    """What moves nothing, a report or a wish, is about a job that runs; but who is woken waits."""
    return State.QUEUED if event.verb == "wake" else State.RUNNING


def _word(state: str | None, about: JobInfo | None) -> str | None:
    """In the lifecycle's own words, unless the job was pruned since."""
    return state if state is None or about is None else about.words[State(state)]


# -- where a client was: the id of the last event it saw -------------------------------------------------------


def place_text(place: LogPosition) -> str:
    pos, job_id, seq = place
    return f"{pos}.{seq}.{job_id}"


def place_of(text: str) -> LogPosition:
    found = _PLACE.fullmatch(text)
    if found is None or not is_uuid(found[3]) or int(found[1]) >= 2**63 or int(found[2]) >= 2**31:
        raise not_given_out()
    return int(found[1]), found[3], int(found[2])


def number_of(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) >= 2**31:
        raise not_given_out()
    return int(text)


def not_given_out() -> Invalid:
    return Invalid(
        "this Last-Event-ID was not given out by this stream; leave it out to begin anew", code="invalid_cursor"
    )
