"""Jobs, attempts and events as JSON for operators: everything but the lease token."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.cli.output import Styled, camel_keys
from holdfast.lifecycle import STATUS, Machine, State
from holdfast.model import Attempt, Event, Job

if TYPE_CHECKING:
    from holdfast.engine.reads.job_limits import LimitOfJob

STYLES = {
    State.CREATED: "dim",
    State.QUEUED: "",
    State.RUNNING: "cyan",
    State.RETRYING: "yellow",
    State.SUCCEEDED: "green",
    State.DEAD: "red",
    State.CANCELED: "dim",
    State.REJECTED: "magenta",
}
# Shown under another name or in another object, or secret: a lease token allows writes.
_ELSEWHERE = {
    *("id", "type", "state", "policy", "lane", "key_lane", "due", "percent", "step", "eta_at"),
    *("lease_worker", "lease_instance", "lease_token", "lease_expires_at", "last_worker"),
}


def job_view(job: Job, machine: Machine, now: datetime) -> dict[str, Any]:
    """`status` is one of six, `state` is the lifecycle's state name, `storedState` is the same in every lifecycle."""
    rest = {name: value for name, value in asdict(job).items() if name not in _ELSEWHERE}
    return {
        "jobId": job.id,
        "jobType": job.type,
        "status": job.status,
        "state": machine.words[job.state],
        "storedState": job.state,
        "derived": job.derived(now),
        **camel_keys(rest),
        "canceledAt": job.canceled_at,
        "partial": job.partial,
        "durationSeconds": job.duration_seconds,
        "progress": _progress(job),
        "lease": _lease(job),
        "lastWorkerId": job.last_worker,
    }


def _progress(job: Job) -> dict[str, Any] | None:
    if job.percent is None and job.step is None:
        return None
    return {"percent": job.percent, "step": job.step, "etaAt": job.eta_at}


def _lease(job: Job) -> dict[str, Any] | None:
    if job.lease_worker is None:
        return None
    return {"workerId": job.lease_worker, "instanceId": job.lease_instance, "expiresAt": job.lease_expires_at}


def limit_view(of_job: LimitOfJob) -> dict[str, Any]:
    return {
        "name": of_job.name,
        "units": of_job.units,
        "held": of_job.held,
        "concurrency": of_job.limit.concurrency,
        "rate": of_job.limit.rate,
        "burst": of_job.limit.burst,
    }


def attempt_view(attempt: Attempt, machine: Machine) -> dict[str, Any]:
    fields = asdict(attempt)
    kept = {name: value for name, value in fields.items() if name not in ("job_id", "token", "to_state")}
    return {**camel_keys(kept), "state": machine.words[State(attempt.to_state)]}


def event_view(event: Event, machine: Machine) -> dict[str, Any]:
    """As in the job's event stream: `from` and `to` are state names of its lifecycle."""
    fields = asdict(event)
    moved = {"from": fields.pop("from_state"), "to": fields.pop("to_state")}
    words = {name: machine.words[State(state)] if state else None for name, state in moved.items()}
    return {**camel_keys(fields), **words, "status": STATUS[State(event.to_state or State.RUNNING)]}


def state_cell(job: Job, machine: Machine) -> Styled:
    return Styled(machine.words[job.state], STYLES[job.state])
