"""Reads of jobs, their history, attempts and parts, and of the event log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import HoldfastError, Invalid, InvalidField, NotFound, UnknownName
from holdfast.ids import is_uuid
from holdfast.lifecycle import State
from holdfast.model import Attempt, Event, Job, Part
from holdfast.model.history import PartStatus
from holdfast.model.names import check_id, check_name, quoted
from holdfast.model.numbers import COUNT_MAX, check_count, check_limit
from holdfast.model.summary import JobSummary
from holdfast.model.times import check_time
from holdfast.store import Row, Tx, q

PAGE_MAX = 500
PAGE_STEP = 50  # rows per query
PAGE_CHARS_MAX = 4 * 1024 * 1024  # a page with longer results ends early
HISTORY_MAX = 10_000
NOWHERE = "00000000-0000-0000-0000-000000000000"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the jobs that match all given fields. `state_filter` makes `states` and `lifecycle_states`."""

    tenant: str | None = None
    states: list[str] | None = None
    lifecycle_states: list[str] | None = None
    types: list[str] | None = None
    queues: list[str] | None = None
    tag: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    error_code: str | None = None
    redrive_of: str | None = None
    subject: str | None = None
    parent_id: str | None = None

    def params(self) -> dict[str, Any]:
        """The given fields, validated."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        for several in given.keys() & {"states", "lifecycle_states", "types", "queues"}:
            if not isinstance(given[several], list | tuple | set | frozenset):
                raise InvalidField(f"{several} must be a list, got {quoted(given[several])}", field=several)
            given[several] = list(given[several])
        known = [state.value for state in State]
        for state in given.get("states", ()):
            if state not in known:
                raise UnknownName.of("state", state if isinstance(state, str) else quoted(state), known)
        for name in given.get("types", ()):
            check_name(name, "job_type")
        for name in given.get("queues", ()):
            check_name(name, "queue")
        for check, fields in (
            (check_name, ("tenant", "tag", "error_code", "subject")),
            (check_time, ("created_after", "created_before")),
            (check_id, ("redrive_of", "parent_id")),
        ):
            for field in fields:
                if field in given:
                    check(given[field], field)
        return given


ALL_JOBS = Filter()


class Page(msgspec.Struct, frozen=True):
    jobs: list[Job]
    next: str | None


class Cursor(NamedTuple):
    """A position in the feed of all events; a later one is greater."""

    pos: int = 0
    job_id: str = NOWHERE
    seq: int = 0

    @classmethod
    def of(cls, row: Row) -> Cursor:
        return cls(row["pos"], row["job_id"], row["seq"])

    def check(self) -> None:
        whole = type(self.pos) is int and type(self.seq) is int
        if not (whole and 0 <= self.pos < 2**63 and 0 <= self.seq <= COUNT_MAX and is_uuid(self.job_id)):
            raise Invalid("invalid cursor; use the cursor that the feed returned", code="invalid_cursor")


LOG_START = Cursor()


async def get(tx: Tx, job_id: str, tenant: str | None = None) -> Job:
    row = await tx.one(q.job, id=job_id) if is_uuid(job_id) else None
    if row is None or (tenant is not None and row["tenant"] != tenant):
        raise (await _missing(tx, [(job_id, tenant)]))[0]
    return Job.from_row(row)


async def jobs(tx: Tx, job_ids: list[str]) -> list[Job | HoldfastError]:
    """Each job, or why there is none."""
    plausible = [job_id for job_id in job_ids if is_uuid(job_id)]
    found = {row["id"]: Job.from_row(row) for row in (await tx.all(q.jobs_by_id, ids=plausible) if plausible else ())}
    missing = [job_id for job_id in job_ids if job_id not in found]
    reasons = dict(zip(missing, await _missing(tx, [(each, None) for each in missing]), strict=True)) if missing else {}
    return [found.get(job_id) or reasons[job_id] for job_id in job_ids]


async def beginning(tx: Tx, text: str, *, limit: int) -> list[str]:
    """The job ids with this prefix, oldest first."""
    digits = text.replace("-", "")
    check_limit(limit, "ids", most=PAGE_MAX)
    if not digits or len(digits) > 32 or not _dashed(digits.ljust(32, "0")).startswith(text):
        return []
    first, last = (_dashed(digits.ljust(32, filler)) for filler in "0f")
    return [row["id"] for row in await tx.all(q.ids_between, first=first, last=last, limit=limit)]


def _dashed(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


async def _missing(tx: Tx, asked: Sequence[tuple[str, str | None]]) -> list[NotFound]:
    """The error for each (job, tenant): the job was pruned, or it does not exist. A tenant sees only its own jobs."""
    ids = [job_id for job_id, _ in asked if is_uuid(job_id)]
    rows = await tx.all(q.pruned_jobs, ids=ids) if ids else []
    pruned = {(row["job_id"], row["tenant"]) for row in rows} | {(row["job_id"], None) for row in rows}
    return [
        _pruned(job_id) if is_uuid(job_id) and (job_id, tenant) in pruned else _unknown(job_id)
        for job_id, tenant in asked
    ]


def _unknown(job_id: str) -> NotFound:
    return NotFound(f"no job {quoted(job_id)}", code="job_not_found", job_id=job_id)


def _pruned(job_id: str) -> NotFound:
    return NotFound(
        f"job {job_id} had finished and was deleted after its retention time (settings HOLDFAST_RETAIN_..._SECONDS)",
        code="job_pruned",
        job_id=job_id,
    )


async def page(tx: Tx, wanted: Filter = ALL_JOBS, *, cursor: str | None = None, limit: int = 50) -> Page:
    """Newest first. The cursor is the last id of the previous page, so new jobs do not shift the pages."""
    check_limit(limit, "jobs", most=PAGE_MAX)
    if cursor is not None and not is_uuid(cursor):
        raise Invalid("invalid cursor; use the cursor of the previous page", code="invalid_cursor")
    params = wanted.params()
    if cursor is not None:
        params["before"] = cursor
    rows = await tx.all(q.page_jobs, limit=limit + 1, filters=tuple(params), **params)
    jobs = [Job.from_row(row) for row in rows[:limit]]
    return Page(jobs, jobs[-1].id if len(rows) > limit else None)


async def outlines(tx: Tx, wanted: list[tuple[str, str]]) -> list[JobSummary | HoldfastError]:
    """The summary or the error for each (job, tenant). A job of another tenant counts as not found."""
    plausible = [(job_id, tenant) for job_id, tenant in wanted if is_uuid(job_id)]
    rows = await tx.all(q.summaries, wanted=plausible) if plausible else []
    found = {(job_id, tenant): JobSummary.from_row(rest) for job_id, tenant, *rest in rows}
    missing = [one for one in dict.fromkeys(wanted) if one not in found]
    reasons = dict(zip(missing, await _missing(tx, missing), strict=True)) if missing else {}
    return [found.get(one) or reasons[one] for one in wanted]


async def page_outlines(
    tx: Tx, wanted: Filter, *, cursor: str | None = None, limit: int = 50
) -> tuple[list[JobSummary], str | None]:
    """Newest first, with the next cursor. A page with large results ends early."""
    check_limit(limit, "jobs", most=PAGE_MAX)
    params = wanted.params()
    found: list[JobSummary] = []
    size, more = 0, True
    while more and len(found) < limit and size < PAGE_CHARS_MAX:
        if (before := found[-1].id if found else cursor) is not None:
            params["before"] = before
        most = min(limit - len(found), PAGE_STEP)
        rows = await tx.all(q.page_summaries, limit=most + 1, filters=tuple(params), **params)
        found += [JobSummary.from_row(row) for row in rows[:most]]
        size += sum(len(summary.result or "") for summary in found[-most:])
        more = len(rows) > most
    return found, found[-1].id if more else None


async def counts(tx: Tx, wanted: Filter = ALL_JOBS) -> list[tuple[str, str, State, int]]:
    """(queue, type, state, number of jobs)."""
    params = wanted.params()
    rows = await tx.all(q.count_jobs, filters=tuple(params), **params)
    return [(row["queue"], row["type"], State(row["state"]), row["jobs"]) for row in rows]


async def history(tx: Tx, job_id: str, *, after: int = 0, limit: int = HISTORY_MAX) -> list[Event]:
    check_count(after, "after")
    check_limit(limit, "events")
    if not is_uuid(job_id):
        return []
    return [
        Event.from_row(row) for row in await tx.all(q.history, id=job_id, after=after, limit=min(limit, HISTORY_MAX))
    ]


async def feed(tx: Tx, after: Cursor = LOG_START, *, limit: int = 1000) -> tuple[list[Event], Cursor]:
    """Events of all jobs after a cursor, and the next cursor. No event is skipped or repeated."""
    after.check()
    check_limit(limit, "events")
    rows = await tx.all(q.feed, pos=after.pos, job_id=after.job_id, seq=after.seq, limit=min(limit, HISTORY_MAX))
    events = [Event.from_row(row) for row in rows]
    last = events[-1] if events else None
    return events, Cursor(last.pos, last.job_id, last.seq) if last else after


async def feed_end(tx: Tx) -> Cursor:
    """The end of the feed: a reader that starts there gets only new events."""
    row = await tx.one(q.feed_end)
    return Cursor.of(row) if row else Cursor()


class Extent(msgspec.Struct, frozen=True):
    """`pruned`: events up to this position may be deleted. `beyond`: no reader can have reached this position."""

    pruned: int
    beyond: int


async def extent(tx: Tx) -> Extent:
    [row] = await tx.all(q.log_extent)
    return Extent(row["pruned"], row["beyond"])


async def attempts(tx: Tx, job_id: str) -> list[Attempt]:
    return [Attempt.from_row(row) for row in await tx.all(q.attempts, id=job_id)] if is_uuid(job_id) else []


async def children(tx: Tx, job_id: str, *, limit: int = 1000) -> list[Job]:
    check_limit(limit, "jobs")
    return [Job.from_row(row) for row in await tx.all(q.children, id=job_id, limit=limit)] if is_uuid(job_id) else []


async def parts(tx: Tx, job_ids: list[str]) -> dict[str, list[Part]]:
    if not isinstance(job_ids, list | tuple) or not all(isinstance(job_id, str) for job_id in job_ids):
        raise InvalidField(f"job ids must be a list of strings, got {quoted(job_ids)}", field="job_ids")
    found: dict[str, list[Part]] = {job_id: [] for job_id in job_ids}
    for row in await tx.all(q.parts, ids=[job_id for job_id in found if is_uuid(job_id)]):
        found[row["job_id"]].append(Part.from_row(row))
    return found


async def unfinished_as_pending(tx: Tx, job_ids: list[str]) -> dict[str, list[Part]]:
    """The parts as a new attempt gets them: finished parts stay, others start again."""
    finished = (PartStatus.COMPLETED, PartStatus.SKIPPED)
    return {
        job_id: [
            part if part.status in finished else msgspec.structs.replace(part, status=PartStatus.PENDING, error=None)
            for part in found
        ]
        for job_id, found in (await parts(tx, job_ids)).items()
    }
