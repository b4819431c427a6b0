"""Converts jobs, attempts and events to admin response bodies, without lease tokens and contents."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.engine.registry import Snapshot
from holdfast.lifecycle import Machine, State
from holdfast.model import Attempt, Event, Job, Part
from holdfast.wire import (
    AdminEvent,
    AdminJob,
    AdminJobWhole,
    AdminProgress,
    AttemptView,
    JobContents,
    LeaseView,
    PartView,
    camel,
)


def camel_keys(fields: dict[str, Any]) -> dict[str, Any]:
    return {camel(name): value for name, value in fields.items()}


def job_view(job: Job, machine: Machine, now: datetime) -> AdminJob:
    return AdminJob.of(job, **_own_fields(job, machine, now))


def whole_view(
    job: Job, snapshot: Snapshot, parts: list[Part], successors: list[str], *, now: datetime, contents: bool
) -> AdminJobWhole:
    return AdminJobWhole.of(
        job,
        **_own_fields(job, snapshot.machine, now),
        redriven_as=successors,
        parts=[_part(part, contents=contents) for part in parts],
        policy=camel_keys(msgspec.to_builtins(snapshot.policy)),
        contents=JobContents(job.payload, job.checkpoint, job.result) if contents else None,
    )


def _own_fields(job: Job, machine: Machine, now: datetime) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "job_type": job.type,
        "lifecycle": machine.name,
        "status": job.status,
        "state": machine.words[job.state],
        "stored_state": job.state.value,
        "derived": job.derived(now),
        "tags": job.tags or [],
        "lease": _lease(job),
        "last_worker_id": job.last_worker,
        "progress": _progress(job),
    }


def _lease(job: Job) -> LeaseView | None:
    if job.lease_worker is None or job.lease_expires_at is None:
        return None
    return LeaseView(job.lease_worker, job.lease_expires_at, job.lease_instance)


def _progress(job: Job) -> AdminProgress | None:
    if job.percent is None and job.step is None and job.eta_at is None:
        return None
    return AdminProgress(job.percent, job.step, job.eta_at)


def _part(part: Part, *, contents: bool) -> PartView:
    """The data of a part counts as contents of the job."""
    return PartView(**{**part.fields(), "status": part.status.value, "data": part.data if contents else None})


def attempt_view(attempt: Attempt, machine: Machine) -> AttemptView:
    return AttemptView.of(attempt, state=machine.words[State(attempt.to_state)], instance_id=attempt.instance)


def event_view(event: Event, machine: Machine) -> AdminEvent:
    def word(state: str | None) -> str | None:
        return None if state is None else machine.words[State(state)]

    return AdminEvent.of(event, from_=word(event.from_state), to=word(event.to_state))
