"""Admin routes that cancel and redrive jobs by filter: a dry run by default, and a bounded number per request.

A client continues with `nextCursor`. Each page of jobs is committed with its audit entry, so a client that disconnects
loses only the response: jobs are not redriven twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

from holdfast.clock import from_micros, to_micros
from holdfast.engine import Filter
from holdfast.engine.admin.audit import AuditedAction
from holdfast.engine.admin.bulk import BulkCancel, BulkOutcome, BulkRedrive, BulkVerb, RedriveRate, carry_out
from holdfast.errors import InvalidField
from holdfast.lifecycle import State
from holdfast.model.names import check_name
from holdfast.server.api.admin import audited, filter_of
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import BulkBody, BulkJob, BulkRedriveBody, BulkResponse, JobFilter, camel

BATCH_MAX = 200  # jobs in one transaction
SAMPLE = 20  # jobs in the response of a dry run


class BulkCursor(NamedTuple):
    """Where a request continues: after which job, and when the first new job may start."""

    after: str | None = None
    start: datetime | None = None


async def cancel(server: ServerState, request: HttpRequest) -> Reply:
    wanted = await _wanted(server, request.body, BulkCancel.states)
    place = await _begin(server, request.body, wanted)
    reason = check_name(request.body.reason, "reason")
    return await _run(server, request, wanted, place, BulkCancel(reason), None)


async def redrive(server: ServerState, request: HttpRequest) -> Reply:
    """A rate spreads the start of the new jobs, continuing from the previous request."""
    body: BulkRedriveBody = request.body
    wanted = await _wanted(server, body, BulkRedrive.states)
    place, now = await _begin(server, body, wanted), await server.engine.reads.now()
    pace = None if body.rate_per_second is None else RedriveRate(max(place.start or now, now), body.rate_per_second)
    return await _run(server, request, wanted, place, BulkRedrive(again=body.again, pace=pace), pace)


async def _wanted(server: ServerState, body: BulkBody, otherwise: tuple[State, ...]) -> Filter:
    """An empty filter must not select all jobs."""
    if not _given(body):
        raise InvalidField("a filter is required, such as jobType, queue or status", field="filter")
    return await filter_of(server, body, otherwise)


def _given(body: JobFilter) -> dict[str, object]:
    named = {camel(name): getattr(body, name) for name in JobFilter.__struct_fields__}
    return {name: value for name, value in named.items() if value is not None}


async def _begin(server: ServerState, body: BulkBody, wanted: Filter) -> BulkCursor:
    if body.cursor is None:
        return BulkCursor()
    after, _, micros = (await server.cursors.decode(body.cursor, wanted)).partition("~")
    return BulkCursor(after, from_micros(int(micros)) if micros else None)


async def _run(
    server: ServerState,
    request: HttpRequest,
    wanted: Filter,
    place: BulkCursor,
    verb: BulkVerb,
    pace: RedriveRate | None,
) -> Reply:
    body: BulkBody = request.body

    def tell(outcomes: list[BulkOutcome]) -> AuditedAction:
        moved = [outcome.job_id for outcome in outcomes if outcome.what not in _NOT_DONE]
        counts = Counter(outcome.what for outcome in outcomes)
        return audited(request, f"jobs.{verb.name}", None, filter=_given(body), outcomes=counts, jobs=moved)

    matched = sum(jobs for *_, jobs in await server.engine.reads.counts(wanted))
    outcomes: list[BulkOutcome] = []
    last: str | None = None
    async for ids, behind in _pages(server, wanted, place.after, body.limit):
        outcomes += await carry_out(
            *(server.engine, verb, ids), first=len(outcomes), rehearse=body.dry_run, tell=None if body.dry_run else tell
        )
        last = behind
    following = None
    if last is not None:
        start = "" if pace is None else str(to_micros(pace.at(len(outcomes))))
        following = await server.cursors.encode(f"{last}~{start}", wanted)
    return Reply(200, _answer(body, matched, outcomes, following))


async def _pages(
    server: ServerState, wanted: Filter, after: str | None, limit: int
) -> AsyncIterator[tuple[list[str], str | None]]:
    """Ids, and the next cursor if there are more; in ascending order, the order in which rows are locked."""
    while limit > 0:
        found = await server.engine.reads.page(wanted, cursor=after, limit=min(BATCH_MAX, limit))
        if found.jobs:
            yield sorted(job.id for job in found.jobs), found.next
        limit, after = limit - len(found.jobs), found.next
        if after is None:
            return


_NOT_DONE = ("already_redriven", "refused")


def _answer(body: BulkBody, matched: int, outcomes: list[BulkOutcome], following: str | None) -> BulkResponse:
    counts = Counter(outcome.what for outcome in outcomes)
    return BulkResponse(
        dry_run=body.dry_run,
        matched=matched,
        done=len(outcomes) - sum(counts[what] for what in _NOT_DONE),
        skipped=counts["already_redriven"],
        refused=counts["refused"],
        jobs=[_job(outcome) for outcome in (outcomes[:SAMPLE] if body.dry_run else outcomes)],
        next_cursor=following,
    )


def _job(outcome: BulkOutcome) -> BulkJob:
    code, message = (outcome.refusal.code, outcome.refusal.message) if outcome.refusal else (None, None)
    return BulkJob(outcome.job_id, outcome.what, outcome.new_id, code, message)
