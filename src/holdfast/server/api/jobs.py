"""Client routes for jobs: create, get, list, cancel."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.engine import Created, Filter
from holdfast.engine.insert import checked
from holdfast.engine.reads.states import STATUSES, state_filter
from holdfast.errors import (
    Forbidden,
    HoldfastError,
    Invalid,
    Malformed,
    NotFound,
    StoreError,
    Unauthorized,
    UnknownName,
)
from holdfast.lifecycle import STATUS
from holdfast.model import NewJob
from holdfast.model.derived_key import check_key_of_client
from holdfast.observe.trace_context import carried
from holdfast.server.api.prefer_wait import applied, read_job, wait_seconds, wait_until
from holdfast.server.api.views import etag, job_view
from holdfast.server.http.route import Headers, HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import Body, JobAccepted, JobIntent, JobPage, JobsAccepted

_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')  # a quoted string (RFC 9651)
_ESCAPED = re.compile(r'\\(["\\])')


class JobsQuery(Body):
    state: str | None = None
    status: str | None = None
    job_type: str | None = None
    queue: str | None = None
    tag: str | None = None
    subject: str | None = None
    parent_id: str | None = None
    cursor: str | None = None
    limit: int = 50


# -- create ---------------------------------------------------------------------------------------------------


async def create(server: ServerState, request: HttpRequest) -> Reply:
    """A repeated request gets the same response as the first, after its commit."""
    intent: JobIntent = request.body
    key = _idempotency_key(request.headers, intent.idempotency_key)
    job = _new_job(server, request, intent, key, carried(request.headers))
    await _check(server, request, [job])
    if server.traces is None:
        made = await server.creates.put(checked(job))
    else:
        [made] = await _traced(server, [job], lambda jobs: _create_alone(server, jobs[0]))
    _count(server, [job], [made])
    status, headers = made.status, [(b"location", b"/jobs/" + made.id.encode())]
    if seconds := wait_seconds(request.headers):
        with suppress(NotFound, StoreError, Unauthorized):  # the job was created, whatever reading it says
            status = (await wait_until(server, request, made.id, lambda summary: summary.final, seconds)).status
        headers.append(applied(seconds))
    return Reply(202, JobAccepted(made.id, status), tuple(headers))


async def create_batch(server: ServerState, request: HttpRequest) -> Reply:
    """All or none. The key in the header, with an index, applies to each job without its own key."""
    intents: list[JobIntent] = request.body.jobs
    if len(intents) > (most := server.engine.limits.batch_max):
        raise Invalid(f"{len(intents)} jobs in one request, the limit is {most}", code="batch_too_large")
    try:
        jobs = _new_jobs(server, request, intents)
        await _check(server, request, jobs)
        made = await _traced(server, jobs, partial(server.engine.create_many, accept=None))
    except HoldfastError as error:
        raise _with_index(error) from error
    _count(server, jobs, made)
    return Reply(202, JobsAccepted([JobAccepted(one.id, one.status) for one in made]))


async def _check(server: ServerState, request: HttpRequest, jobs: list[NewJob]) -> None:
    """Reject jobs that no worker could run, and those of types that need a scope which the key does not have."""
    for job in jobs:
        scope = server.job_scopes.get(job.type)
        if scope is not None and not request.caller.may(scope):
            raise Forbidden(f"creating a {job.type} job needs the scope {scope}")
    await server.engine.job_types.check(jobs, refuse_unknown=server.settings.unknown_job_types == "refuse")


def _count(server: ServerState, jobs: list[NewJob], made: list[Created]) -> None:
    for job, one in zip(jobs, made, strict=True):
        if not one.existed:
            server.metrics.created.add(1, job.queue or server.engine.ctx.registry.queue_of(job.type))


async def _create_alone(server: ServerState, job: NewJob) -> list[Created]:
    return [await server.creates.put(checked(job))]


async def _traced(
    server: ServerState, jobs: list[NewJob], create: Callable[[list[NewJob]], Awaitable[list[Created]]]
) -> list[Created]:
    """With tracing, the span of the server is between those of the client and the attempts."""
    if server.traces is None or not jobs:
        return await create(jobs)
    return await server.traces.enqueued(jobs, create, queue=jobs[0].queue)


def _new_jobs(server: ServerState, request: HttpRequest, intents: list[JobIntent]) -> list[NewJob]:
    key, trace, jobs = _key_in(request.headers), carried(request.headers), list[NewJob]()
    try:
        for place, intent in enumerate(intents):
            jobs.append(_new_job(server, request, intent, _key_of_index(intent, key, place), trace))
    except Invalid as error:
        error.fields["place"] = len(jobs)
        raise
    return jobs


def _new_job(
    server: ServerState, request: HttpRequest, intent: JobIntent, key: str | None, trace: dict[str, str] | None
) -> NewJob:
    check_key_of_client(key)
    return NewJob(
        type=intent.job_type,
        payload=_with_caller(intent, server.caller_fields.get(intent.job_type), request.caller.subject),
        tenant=request.caller.tenant,
        queue=intent.queue,
        priority=intent.priority,
        run_at=intent.run_at,
        delay_seconds=intent.delay_seconds,
        idempotency_key=key,
        max_attempts=intent.max_attempts,
        tags=intent.tags,
        subject=intent.subject,
        lifecycle=intent.lifecycle,
        limit_key=intent.limit_key,
        fairness_key=intent.fairness_key,
        limits=intent.limits,
        trace=trace,
    )


def _with_caller(intent: JobIntent, field: str | None, subject: str) -> dict[str, Any]:
    """The payload with the subject of the caller in the field that its job type declares."""
    if field is None:
        return intent.payload
    if field in intent.payload:
        raise Invalid(
            f"payload of {intent.job_type}: `{field}`: the server sets it to the subject of the key; leave it out",
            code="invalid_payload",
            field=field,
        )
    return {**intent.payload, field: subject}


def _idempotency_key(headers: Headers, in_body: str | None) -> str | None:
    in_header = _key_in(headers)
    if in_header is None or in_body is None or in_header == in_body:
        return in_body if in_header is None else in_header
    raise Malformed("the header Idempotency-Key and the field idempotencyKey differ", code="conflicting_input")


def _key_in(headers: Headers) -> str | None:
    """Plain or quoted: `abc` and `"abc"` are the same key."""
    said = headers.get(b"idempotency-key")
    if said is None:
        return None
    text = said.decode("latin-1")
    quoted = _QUOTED.fullmatch(text)
    return _ESCAPED.sub(r"\1", quoted[1]) if quoted else text


def _key_of_index(intent: JobIntent, key: str | None, place: int) -> str | None:
    return intent.idempotency_key if intent.idempotency_key is not None or key is None else f"{key}/{place}"


def _with_index(error: HoldfastError) -> HoldfastError:
    """Name the index of the job in a batch."""
    if "place" in error.fields:
        error.message = f"jobs[{error.fields['place']}]: {error.message}"
    return error


# -- reads ----------------------------------------------------------------------------------------------------


async def get(server: ServerState, request: HttpRequest) -> Reply:
    """`Prefer: wait` waits until the job has ended, or differs from the `If-None-Match` of the client."""
    job_id, known = request.path["job_id"], _known(request.headers)
    seconds = wait_seconds(request.headers)
    if seconds:
        summary = await wait_until(
            server, request, job_id, lambda seen: seen.final or (bool(known) and etag(seen) not in known), seconds
        )
    else:
        cached = server.redis.cached if server.redis is not None else None
        summary = await (cached.get(job_id, request.caller.tenant) if cached else read_job(server, request, job_id))
    tag = etag(summary)
    headers = ((b"etag", tag), applied(seconds)) if seconds else ((b"etag", tag),)
    return Reply(304, None, headers) if tag in known else Reply(200, job_view(summary), headers)


def _known(headers: Headers) -> list[bytes]:
    """The tags in If-None-Match, all treated as weak."""
    said = headers.get(b"if-none-match")
    if said is None:
        return []
    return [b"W/" + tag.strip().removeprefix(b"W/") for tag in said.split(b",")]


async def page(server: ServerState, request: HttpRequest) -> Reply:
    query: JobsQuery = request.query
    if query.status is not None:
        _check_statuses(query.status)
    wanted = Filter(
        tenant=request.caller.tenant,
        **state_filter(await server.engine.reads.lifecycles(), state=query.state, status=query.status),
        types=[query.job_type] if query.job_type is not None else None,
        queues=[query.queue] if query.queue is not None else None,
        tag=query.tag,
        subject=query.subject,
        parent_id=query.parent_id,
    )
    after = await server.cursors.decode(query.cursor, wanted) if query.cursor is not None else None
    found, place = await server.engine.reads.page_summaries(wanted, cursor=after, limit=query.limit)
    following = await server.cursors.encode(place, wanted) if place is not None else None
    return Reply(200, JobPage([job_view(summary) for summary in found], following))


def _check_statuses(listed: str) -> None:
    """Case-sensitive."""
    for status in listed.split(","):
        if status not in STATUSES:
            raise UnknownName.of("status", status[:80], list(STATUSES))


# -- cancel ---------------------------------------------------------------------------------------------------


async def cancel(server: ServerState, request: HttpRequest) -> Reply:
    """The request is stored at once; a running job ends when its worker has stopped."""
    job_id = request.path["job_id"]
    canceled = await server.cancel(job_id, request.caller.tenant)
    return Reply(202, JobAccepted(job_id, STATUS[canceled.state]))
