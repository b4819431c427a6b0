"""Alerts: events that operators are notified of at once. At most one per kind and cooldown; the rest are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.engine.reads.missing_extensions import sentences
from holdfast.lifecycle import State
from holdfast.model import Event
from holdfast.store import Row, Tx, q

STALE, SPENT, PATTERN = "stale_job_recovered", "job_max_retries_exceeded", "job_failed_pattern"
STARTUP, SHUTDOWN = "worker_startup", "worker_shutdown"
EXTENSION = "extension_missing"
KINDS = (STALE, SPENT, PATTERN, STARTUP, SHUTDOWN, EXTENSION)
# Alerts are stored as deliveries, each kind as if it were a webhook with this id.
MAILBOX = {kind: f"00000000-0000-0000-0000-{number:012}" for number, kind in enumerate(KINDS, 1)}

PATTERN_FAILURES, PATTERN_SECONDS = 5, 600
REMEMBERED_MAX = 500  # subjects and job types whose failures are remembered

Memory = dict[str, list[datetime]]  # recent failures since the last success, by tenant and subject or job type


class AlertRules(msgspec.Struct, frozen=True):
    """The enabled kinds, and the pause between two alerts of one kind."""

    kinds: frozenset[str] = frozenset()
    cooldown_seconds: float = 300


class Alert(msgspec.Struct, frozen=True):
    kind: str
    event: Event
    message: str
    about: dict[str, Any]

    def body(self, count: int, now: datetime) -> bytes:
        more = f" ({count} of these since the last alert)" if count > 1 else ""
        common = {"alert": self.kind, "message": self.message + more, "count": count, "at": now}
        return msgspec.json.encode(common | self.about)


# -- classification of events: pure -------------------------------------------------------------------------------


def is_failure(event: Event) -> bool:
    """An attempt failed or was lost, whether the job is retried or not."""
    return event.verb in ("fail", "reap") and event.from_state == State.RUNNING


def is_stale(event: Event) -> bool:
    return event.verb == "reap" and event.from_state == State.RUNNING


def is_spent(event: Event, job: Row) -> bool:
    died = event.verb in ("fail", "reap") and event.to_state == State.DEAD
    return died and event.attempt >= int(job["max_attempts"])


def matters(event: Event) -> bool:
    return event.verb in ("fail", "reap", "complete", "worker")


def raised(events: list[Event], jobs: Mapping[str, Row], memory: Memory) -> Iterator[Alert]:
    """The alerts of these events, in order. Updates `memory`."""
    for event in events:
        if event.verb == "worker":
            yield from _of_worker(event)
        elif (job := jobs.get(event.job_id)) is not None:
            yield from _of_job(event, job)
            if _completes_pattern(event, job, memory):
                yield _pattern(event, job)


def _of_worker(event: Event) -> Iterator[Alert]:
    data = event.data if isinstance(event.data, dict) else {}
    name, was = data.get("name") or event.job_id, data.get("was")
    about = {"workerId": event.job_id, "worker": name}
    if event.reason == "offline" and was != "offline":
        yield Alert(SHUTDOWN, event, f"worker {name} is offline", about)
    elif event.reason not in ("offline", "disabled") and was in (None, "offline"):
        yield Alert(STARTUP, event, f"worker {name} has started", about)


def _of_job(event: Event, job: Row) -> Iterator[Alert]:
    what = f"{job['type']} job {event.job_id}"
    if is_stale(event):
        then = "it will be retried" if event.to_state == State.RETRYING else f"it is {event.to_state} now"
        yield Alert(STALE, event, f"{what} was taken from its worker ({event.reason}); {then}", _about(event, job))
    if is_spent(event, job):
        message = f"{what} has used up its {job['max_attempts']} attempts: {event.reason}"
        yield Alert(SPENT, event, message, _about(event, job))


def _pattern(event: Event, job: Row) -> Alert:
    which = f"{job['type']} jobs" if job["subject"] is None else f"jobs about {job['subject']!r}"
    message = (
        f"{which} failed {PATTERN_FAILURES} times within {PATTERN_SECONDS // 60} minutes "
        f"without a success in between; the last error was {event.reason}"
    )
    return Alert(PATTERN, event, message, _about(event, job))


def _about(event: Event, job: Row) -> dict[str, Any]:
    """Names and codes only, never payloads or error messages."""
    return {
        "jobId": event.job_id,
        "jobType": job["type"],
        "queue": job["queue"],
        "tenant": event.tenant,
        "attempt": event.attempt,
        "error": event.reason,
    } | ({} if job["subject"] is None else {"subject": job["subject"]})


def _completes_pattern(event: Event, job: Row, memory: Memory) -> bool:
    about = job["type"] if job["subject"] is None else f"\n{job['subject']}"  # no name has a line break
    key = f"{event.tenant}\n{about}"
    if event.verb == "complete":
        memory.pop(key, None)
    if not is_failure(event):
        return False
    since = event.at - timedelta(seconds=PATTERN_SECONDS)
    memory[key] = [*(at for at in memory.get(key, ()) if at > since), event.at]
    if len(memory[key]) < PATTERN_FAILURES:
        return False
    del memory[key]  # the next alert needs as many failures again
    return True


# -- alerts in the database ---------------------------------------------------------------------------------------


async def due(
    tx: Tx, watch: AlertRules, events: list[Event], jobs: Mapping[str, Row], now: datetime
) -> list[tuple[Alert, bytes]]:
    """The alerts to send now, with their bodies. The caller has locked the reader, so no other process counts."""
    rows = {row["kind"]: row for row in await tx.all(q.alerts)}
    memory = _remembered(rows, now)
    found = [alert for alert in raised(events, jobs, memory) if alert.kind in watch.kinds]
    sent = []
    for kind, count in _counted(found, memory, rows).items():
        row = rows.get(kind)
        total = count + (row["held"] if row else 0)
        last = row["sent_at"] if row else None
        if may := count > 0 and (last is None or last <= now - timedelta(seconds=watch.cooldown_seconds)):
            latest = next(alert for alert in reversed(found) if alert.kind == kind)
            sent.append((latest, latest.body(total, now)))
        kept = msgspec.json.encode(memory).decode() if kind == PATTERN else None
        await tx.one(q.put_alert, kind=kind, sent_at=now if may else last, held=0 if may else total, memory=kept)
    return sent


async def due_for_extensions(tx: Tx, watch: AlertRules, missing: Mapping[str, int], now: datetime) -> bytes | None:
    """The alert to send now. The caller has locked the reader."""
    row = next((row for row in await tx.all(q.alerts) if row["kind"] == EXTENSION), None)
    if row is not None and row["sent_at"] > now - timedelta(seconds=watch.cooldown_seconds):
        return None
    await tx.one(q.put_alert, kind=EXTENSION, sent_at=now, held=0, memory=None)
    common = {"alert": EXTENSION, "message": "; ".join(sentences(missing)), "count": 1, "at": now}
    return msgspec.json.encode(common | {"extensions": missing})


def _counted(found: list[Alert], memory: Memory, rows: Mapping[str, Row]) -> Counter[str]:
    """The number of alerts per kind. `PATTERN` is included whenever its memory has changed, so that it is stored."""
    counts = Counter(alert.kind for alert in found)
    before = rows[PATTERN]["memory"] if PATTERN in rows else None
    if msgspec.json.encode(memory).decode() != (before or "{}"):
        counts[PATTERN] += 0
    return counts


def _remembered(rows: Mapping[str, Row], now: datetime) -> Memory:
    text = rows[PATTERN]["memory"] if PATTERN in rows else None
    memory = msgspec.json.decode(text, type=Memory) if text else {}
    since = now - timedelta(seconds=PATTERN_SECONDS)
    fresh = {key: times for key, times in memory.items() if times[-1] > since}
    return dict(sorted(fresh.items(), key=lambda item: item[1][-1])[-REMEMBERED_MAX:])
