"""The control plane: hand in a job, ask after it, list, cancel. It records intent and runs nothing."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from holdfast.engine import Created, Filter
from holdfast.engine.insert import ready
from holdfast.engine.reads.states import STATUSES, state_filter
from holdfast.engine.withdraw import CONTROL
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
from holdfast.model.key import Scope
from holdfast.observe.trace_context import carried
from holdfast.server.api.prefer_wait import applied, look, look_until, patience
from holdfast.server.api.views import etag, job_view
from holdfast.server.http.route import Headers, HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import Body, JobAccepted, JobIntent, JobPage, JobsAccepted

_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')  # a string of structured fields (RFC 9651)
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


# -- handing in -----------------------------------------------------------------------------------------------


async def create(server: ServerState, request: HttpRequest) -> Reply:
    """The first request and each of its repeats get the same answer, after its commit."""
    intent: JobIntent = request.body
    key = _one_key(request.headers, intent.idempotency_key)
    job = _new_job(intent, request.caller.tenant, key, carried(request.headers))
    await _check(server, request, [job])
    [made] = await _traced(server, [job], lambda jobs: _hand_in_alone(server, jobs[0]))
    _count(server, [job], [made])
    status, headers = made.status, [(b"location", b"/jobs/" + made.id.encode())]
    if seconds := patience(request.headers):
        with suppress(NotFound, StoreError, Unauthorized):  # forgotten, or out of sight: but handed in it is
            status = (await look_until(server, request, made.id, lambda outline: outline.final, seconds)).status
        headers.append(applied(seconds))
    return Reply(202, JobAccepted(made.id, status), tuple(headers))


async def create_batch(server: ServerState, request: HttpRequest) -> Reply:
    """All or none. A key in the header stands for all: each job without one of its own gets that key and its place."""
    intents: list[JobIntent] = request.body.jobs
    if len(intents) > (most := server.engine.limits.batch_max):
        raise Invalid(f"{len(intents)} jobs in one request, the limit is {most}", code="batch_too_large")
    key, tenant, trace = _key_in(request.headers), request.caller.tenant, carried(request.headers)
    jobs = [_new_job(intent, tenant, _key_of_place(intent, key, place), trace) for place, intent in enumerate(intents)]
    try:
        await _check(server, request, jobs)
        made = await _traced(server, jobs, partial(server.engine.create_many, accept=None))
    except HoldfastError as error:
        raise _naming_place(error) from error
    _count(server, jobs, made)
    return Reply(202, JobsAccepted([JobAccepted(one.id, one.status) for one in made]))


async def _check(server: ServerState, request: HttpRequest, jobs: list[NewJob]) -> None:
    """What no worker could do is refused here, where its sender hears of it. A job that cancels is a cancel."""
    if not request.caller.may(Scope.JOBS_CANCEL) and any(job.type == CONTROL for job in jobs):
        raise Forbidden(f"to create a {CONTROL} needs the scope {Scope.JOBS_CANCEL}")
    await server.engine.job_types.check(jobs, refuse_unknown=server.settings.unknown_job_types == "refuse")


def _count(server: ServerState, jobs: list[NewJob], made: list[Created]) -> None:
    for job, one in zip(jobs, made, strict=True):
        if not one.existed:
            server.metrics.created.add(1, job.queue or server.engine.ctx.registry.queue_of(job.type))


async def _hand_in_alone(server: ServerState, job: NewJob) -> list[Created]:
    return [await server.creates.put(ready(job))]


async def _traced(
    server: ServerState, jobs: list[NewJob], create: Callable[[list[NewJob]], Awaitable[list[Created]]]
) -> list[Created]:
    """A server that makes spans puts its own between the client's and those of the attempts."""
    if server.traces is None or not jobs:
        return await create(jobs)
    return await server.traces.enqueued(jobs, create, queue=jobs[0].queue)


def _new_job(intent: JobIntent, tenant: str, key: str | None, trace: dict[str, str] | None) -> NewJob:
    return NewJob(
        type=intent.job_type,
        payload=intent.payload,
        tenant=tenant,
        queue=intent.queue,
        priority=intent.priority,
        run_at=intent.run_at,
        delay_seconds=intent.delay_seconds,
        idempotency_key=key,
        max_attempts=intent.max_attempts,
        tags=intent.tags,
        subject=intent.subject,
        lifecycle=intent.lifecycle,
        trace=trace,
    )


def _one_key(headers: Headers, in_body: str | None) -> str | None:
    in_header = _key_in(headers)
    if in_header is None or in_body is None or in_header == in_body:
        return in_body if in_header is None else in_header
    raise Malformed("the header Idempotency-Key and the field idempotencyKey differ", code="conflicting_input")


def _key_in(headers: Headers) -> str | None:
    """As it stands, or as a quoted string: `abc` and `"abc"` are the same key."""
    said = headers.get(b"idempotency-key")
    if said is None:
        return None
    text = said.decode("latin-1")
    quoted = _QUOTED.fullmatch(text)
    return _ESCAPED.sub(r"\1", quoted[1]) if quoted else text


def _key_of_place(intent: JobIntent, key: str | None, place: int) -> str | None:
    return intent.idempotency_key if intent.idempotency_key is not None or key is None else f"{key}/{place}"


def _naming_place(error: HoldfastError) -> HoldfastError:
    """Of many jobs, say which."""
    if "place" in error.fields:
        error.message = f"jobs[{error.fields['place']}]: {error.message}"
    return error


# -- asking ---------------------------------------------------------------------------------------------------


async def get(server: ServerState, request: HttpRequest) -> Reply:
    """With `Prefer: wait`, once it is final; or once it is no longer as the client says that it knows it."""
    job_id, known = request.path["job_id"], _known(request.headers)
    seconds = patience(request.headers)
    if seconds:
        outline = await look_until(
            server, request, job_id, lambda seen: seen.final or (bool(known) and etag(seen) not in known), seconds
        )
    else:
        cached = server.redis.cached if server.redis is not None else None
        outline = await (cached.get(job_id, request.caller.tenant) if cached else look(server, request, job_id))
    tag = etag(outline)
    headers = ((b"etag", tag), applied(seconds)) if seconds else ((b"etag", tag),)
    return Reply(304, None, headers) if tag in known else Reply(200, job_view(outline), headers)


def _known(headers: Headers) -> list[bytes]:
    """The tags in If-None-Match, of which all count as weak."""
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
    after = await server.cursors.place(query.cursor, wanted) if query.cursor is not None else None
    found, place = await server.engine.reads.page_summaries(wanted, cursor=after, limit=query.limit)
    following = await server.cursors.given_out(place, wanted) if place is not None else None
    return Reply(200, JobPage([job_view(outline) for outline in found], following))


def _check_statuses(listed: str) -> None:
    """To the letter, as clients see them."""
    for status in listed.split(","):
        if status not in STATUSES:
            raise UnknownName.of("status", status[:80], list(STATUSES))


# -- canceling ------------------------------------------------------------------------------------------------


async def cancel(server: ServerState, request: HttpRequest) -> Reply:
    """A wish: it is kept at once, and obeyed at once unless a worker has to stop first."""
    job_id = request.path["job_id"]
    told = await server.engine.cancel(job_id, tenant=request.caller.tenant)
    if server.redis is not None and server.redis.cached is not None:
        await server.redis.cached.refresh(job_id, request.caller.tenant)
    return Reply(202, JobAccepted(job_id, STATUS[told.state]))
