"""`holdfast jobs show`: prints everything about one job."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli.database import machines_of, on_engine
from holdfast.cli.ids import job_id
from holdfast.cli.jobs.views import STYLES, attempt_view, job_view, limit_view
from holdfast.cli.output import (
    Cell,
    Styled,
    bar,
    camel_keys,
    count,
    json_text,
    on_terminal,
    print_facts,
    print_json,
    print_table,
    short_id,
    short_time,
    time_text,
)
from holdfast.cli.parser import command
from holdfast.lifecycle import Machine, State
from holdfast.model import Attempt, Job, Part
from holdfast.redaction import printable, redacted, redacted_end

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.engine.reads.job_limits import LimitOfJob

Fact = tuple[str, Cell | None]
ERROR_CHARS_MAX = 200
_SHOWN_ELSEWHERE = ("traceback", "attempt", "workerId")  # of the context of an error


def add_to(verbs: Any) -> None:
    parser = command(
        verbs,
        "show",
        show,
        about="show everything about one job: state, lease, limits, attempts, parts, progress, payload, error",
        examples=["holdfast jobs show 01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f", "holdfast jobs show ID --traceback"],
    )
    parser.add_argument("--traceback", action="store_true", help="include the traceback of each failed attempt")
    parser.add_argument("job", metavar="ID", help="job id, or a prefix of it")


@on_engine
async def show(engine: Engine, options: argparse.Namespace) -> None:
    job = await engine.reads.get(await job_id(engine, options.job))
    machine = (await machines_of(engine, [job]))[job.id]
    attempts, parts = await engine.reads.attempts(job.id), await engine.reads.parts(job.id)
    limits = await engine.reads.limits_of(job)
    if options.json:
        view = job_view(job, machine, await engine.reads.now())
        view["limits"] = [limit_view(limit) for limit in limits]
        view["attempts"] = [attempt_view(attempt, machine) for attempt in attempts]
        print_json({**view, "parts": [camel_keys(part.fields()) for part in parts]})
    else:
        _print(job, machine, attempts, parts, limits)
        _print_tracebacks(job, attempts, shown=options.traceback)


def _print(job: Job, machine: Machine, attempts: list[Attempt], parts: list[Part], limits: list[LimitOfJob]) -> None:
    bounds: Fact = "limits", "\n".join(map(_limit, limits))
    print_facts([*_what(job), *_state(job, machine), bounds, *_times(job), *_work(job), *_contents(job, attempts)])
    if parts:
        print("\nparts")
        print_table(["part", "status", "progress", "error"], map(_part_row, parts))
    if attempts:
        print("\nfinished attempts")
        rows = (_attempt_row(attempt, machine) for attempt in attempts)
        titles: list[Cell] = ["attempt", "started (UTC)", "ended (UTC)", "outcome", "went to", "worker", "error"]
        print_table(titles, rows, droppable=("worker", "ended (UTC)", "went to"))


def _print_tracebacks(job: Job, attempts: list[Attempt], *, shown: bool) -> None:
    """At the end, and only with `--traceback`, because they are long."""
    found = {attempt.attempt: text for attempt in attempts if (text := _traceback(attempt.error))}
    if found and not shown and on_terminal():
        print(f"\nfor the traceback: holdfast jobs show {short_id(job.id)} --traceback")
    for number, text in found.items() if shown else ():
        print(f"\ntraceback of attempt {number}")
        print(printable(redacted_end(text.rstrip()), keep="\n"))


def _what(job: Job) -> Iterator[Fact]:
    yield "job", job.id
    yield "type", job.type
    yield "queue", f"{job.queue}, priority {job.priority}"
    yield "lifecycle", job.lifecycle
    yield "tenant", job.tenant if job.tenant != "default" else None
    yield "subject", job.subject
    yield "tags", ", ".join(job.tags or [])
    yield "key", job.idempotency_key
    yield "limit key", job.limit_key
    yield "fairness key", job.fairness_key
    yield "redrive of", job.redrive_of
    yield "parent", job.parent_id


def _state(job: Job, machine: Machine) -> Iterator[Fact]:
    word = machine.words[job.state]
    stored = f" ({job.state})" if word != job.state else ""
    why = f", because {job.reason}" if job.reason else ""
    yield "state", Styled(f"{word}{stored} since {time_text(_since(job))}{why}", STYLES[job.state])
    yield "attempt", f"{job.attempt} of {job.max_attempts}; {job.failures} failed, {job.lost} lost"
    if job.lease_worker:
        instance = f", instance {job.lease_instance}" if job.lease_instance else ""
        yield "lease", f"worker {job.lease_worker}{instance}, until {time_text(job.lease_expires_at)}"
    yield "cancel", f"requested at {time_text(job.cancel_requested_at)}" if job.cancel_requested_at else None


def _limit(limit: LimitOfJob) -> str:
    verb, units = ("holds", limit.held) if limit.held else ("takes", limit.units)
    return f"{limit.name}: {verb} {count(units, 'unit')}; {limit.limit.text}"


def _since(job: Job) -> datetime:
    """A running job is updated by each report, so its claim time is used."""
    return job.claimed_at if job.state == "running" and job.claimed_at else job.updated_at


def _times(job: Job) -> Iterator[Fact]:
    yield "created", time_text(job.created_at)
    yield "runs at", time_text(job.run_at) if not job.final and job.run_at > job.created_at else None
    yield "started", time_text(job.started_at)
    yield "finished", time_text(job.finished_at)


def _work(job: Job) -> Iterator[Fact]:
    step = f"  {job.step}" if job.step else ""
    yield "progress", bar(job.percent) + step if job.percent is not None else job.step
    yield "ETA", time_text(job.eta_at)
    yield "counters", json_text(job.counters)
    yield "checkpoint", json_text(job.checkpoint)


def _contents(job: Job, attempts: list[Attempt]) -> Iterator[Fact]:
    yield "payload", json_text(job.payload)
    yield "result", json_text(job.result)
    if job.error:
        reason = next((attempt.reason for attempt in reversed(attempts) if attempt.error == job.error), None)
        yield "error", "\n".join(_error(dict(job.error), reason))


def _error(error: dict[str, Any], reason: str | None) -> Iterator[str]:
    """Without fields that are shown elsewhere."""
    because = _because(error, reason)
    yield redacted(f"{error.pop('code', '')}: {error.pop('message', '')}{because}")
    context = error.get("context")
    if isinstance(context, dict):
        error["context"] = {name: value for name, value in context.items() if name not in _SHOWN_ELSEWHERE}
    if rest := {name: value for name, value in error.items() if value}:
        yield redacted(json_text(rest))


def _traceback(error: Any) -> str | None:
    context = error.get("context") if isinstance(error, dict) else None
    text = context.get("traceback") if isinstance(context, dict) else None
    return text if isinstance(text, str) and text else None


def _part_row(part: Part) -> list[Cell]:
    share = f"{part.done or 0} of {part.total}" if part.total is not None else ""
    progress = bar(part.percent) if part.percent is not None else share
    return [part.name, part.status.value, progress, part.error or ""]


def _attempt_row(attempt: Attempt, machine: Machine) -> list[Cell]:
    return [
        f"{attempt.attempt}",
        short_time(attempt.started_at),
        short_time(attempt.ended_at),
        attempt.outcome,
        machine.words[State(attempt.to_state)],
        attempt.worker_name or attempt.worker_id,
        _attempt_error(attempt),
    ]


def _attempt_error(attempt: Attempt) -> str:
    """In one line: the error of the handler or the worker, else the reason."""
    if not isinstance(attempt.error, dict):
        return attempt.reason or ""
    code, message = (str(attempt.error.get(name) or "") for name in ("code", "message"))
    first, *more = message.splitlines() or [""]
    text = redacted(f"{code}: {first}{' ...' if more else ''}" if first else code, ERROR_CHARS_MAX)
    return text + _because(attempt.error, attempt.reason)


def _because(error: dict[str, Any], reason: str | None) -> str:
    """The reason of the transition, if the error code is another: the code of a lost attempt is `timeout_soft`."""
    return f" ({reason})" if reason and reason != error.get("code") else ""
