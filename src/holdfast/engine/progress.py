"""progress: store the progress, parts and checkpoint of a running job, publish them, and renew its lease."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.fail import shown
from holdfast.engine.leases import check_worker, in_rounds, refusal_of, token_rows
from holdfast.engine.move import move
from holdfast.errors import HoldfastError, Invalid, InvalidField
from holdfast.lifecycle import Actor
from holdfast.model.history import PART_BYTES_MAX, PartReport, PartStatus
from holdfast.model.json import check_object, decode_or_none, encode
from holdfast.model.names import check_name, quoted
from holdfast.model.numbers import check_count, check_number
from holdfast.model.reports import Advanced, Progress
from holdfast.store import Tx, q

COUNTERS_BYTES_MAX = 16 * 1024
PARTS_MAX = 1000


@in_rounds
async def progress(tx: Tx, ctx: EngineContext, worker: str, reports: list[Progress]) -> list[Advanced | HoldfastError]:
    """Store each report whose token is current, and return why the others were rejected."""
    check_worker(worker)
    for report in reports:
        _check(report)
    counters = await _merged_counters(tx, reports, worker)
    rows = sorted(
        (
            report.id,
            report.token,
            report.step,
            None if report.percent is None else float(report.percent),
            counters.get(report.id),
            None if report.eta_seconds is None else float(report.eta_seconds),
            None
            if report.checkpoint is None
            else encode(report.checkpoint, "checkpoint", max_bytes=ctx.limits.checkpoint_bytes_max),
        )
        for report in reports
        if report.plausible
    )
    stored = {
        row["id"]: row for row in await move(tx, ctx, q.advance_jobs, actor=Actor.WORKER, told=rows, worker=worker)
    }
    parts = [_part_row(ctx, report.id, place, part) for report in reports for place, part in enumerate(report.parts)]
    if kept := [row for row in parts if row[0] in stored]:
        await _keep_parts(tx, ctx, [report for report in reports if report.id in stored and report.parts], kept)
    return [
        Advanced(report.id, stored[report.id]["lease_expires_at"], stored[report.id]["cancel_requested_at"] is not None)
        if report.id in stored
        else await refusal_of(tx, ctx, report, worker)
        for report in reports
    ]


async def _keep_parts(tx: Tx, ctx: EngineContext, reports: list[Progress], rows: list[tuple[Any, ...]]) -> None:
    if reopened := [(report.id, part.name) for report in reports for part in report.parts if part.reopen]:
        await tx.all(q.reopen_parts, part=reopened)
    await tx.all(q.put_parts, part=rows)
    await _check_parts_in_all(tx, {row[0] for row in rows})
    await tx.all(q.number_event, ids=[report.id for report in reports], actor=Actor.WORKER.value)
    await tx.all(q.insert_parts_event, said=[(report.id, _logged(ctx, report.parts)) for report in reports])


def _logged(ctx: EngineContext, parts: list[PartReport]) -> str:
    """The parts as the event log stores them: without their data."""
    lines = []
    for part in parts:
        line = {name: getattr(part, name) for name in ("name", "status", "percent", "total", "done", "error")}
        line["error"] = None if part.error is None else shown(ctx, part.error)
        lines.append({name: value for name, value in line.items() if value is not None})
    return msgspec.json.encode(lines).decode()


async def _merged_counters(tx: Tx, reports: list[Progress], worker: str) -> dict[str, str]:
    new = {report.id: report.counters for report in reports if report.counters}
    if not new:
        return {}
    held = token_rows([report for report in reports if report.counters])
    rows = await tx.all(q.held_counters, held=held, worker=worker)
    return {
        row["id"]: encode(
            {**(decode_or_none(row["counters"]) or {}), **(new[row["id"]] or {})},
            "counters",
            max_bytes=COUNTERS_BYTES_MAX,
        )
        for row in rows
    }


def _check(report: Progress) -> None:
    if report.percent is not None:
        check_number(report.percent, "percent", most=100)
    if report.step is not None:
        check_name(report.step, "step")
    if report.eta_seconds is not None:
        check_number(report.eta_seconds, "eta_seconds")
    if report.counters is not None:
        check_object(report.counters, "counters")
    if not isinstance(report.parts, list | tuple):
        raise InvalidField(f"parts must be a list, got {quoted(report.parts)}", field="parts")
    if len(report.parts) > PARTS_MAX:
        raise _too_many(len(report.parts))
    for part in report.parts:
        _check_part(part)
    if len({part.name for part in report.parts}) != len(report.parts):
        raise InvalidField("two parts in one report have the same name", field="parts")


def _check_part(part: PartReport) -> None:
    if not isinstance(part, PartReport):
        raise InvalidField(f"parts must be a list of Part, got {quoted(part)}", field="parts")
    check_name(part.name, "parts", "the name of each of ")
    if part.status not in list(PartStatus):
        known = ", ".join(PartStatus)
        raise InvalidField(f"the status of a part must be one of {known}, got {quoted(part.status)}", field="parts")
    if not isinstance(part.reopen, bool):
        raise InvalidField(f"reopen must be true or false, got {quoted(part.reopen)}", field="parts")
    if part.error is not None and not isinstance(part.error, str):
        raise InvalidField(f"the error of a part must be text, got {quoted(part.error)}", field="parts")
    if part.percent is not None:
        check_number(part.percent, "percent", most=100)
    for count, what in ((part.total, "total"), (part.done, "done")):
        if count is not None:
            check_count(count, what)


async def _check_parts_in_all(tx: Tx, job_ids: set[str]) -> None:
    """Including parts of earlier reports. Raising rolls back what this report has written."""
    most = max(row["parts"] for row in await tx.all(q.count_parts, ids=sorted(job_ids)))
    if most > PARTS_MAX:
        raise _too_many(most)


def _too_many(parts: int) -> Invalid:
    return Invalid(f"a job has at most {PARTS_MAX} parts, got {parts}; use larger parts", code="too_many_parts")


def _part_row(ctx: EngineContext, job_id: str, place: int, part: PartReport) -> tuple[Any, ...]:
    data = None if part.data is None else encode(part.data, "part", max_bytes=PART_BYTES_MAX)
    return (
        *(job_id, place, part.name, str(part.status)),
        *(None if part.percent is None else float(part.percent), part.total, part.done),
        *(None if part.error is None else shown(ctx, part.error), data),
    )
