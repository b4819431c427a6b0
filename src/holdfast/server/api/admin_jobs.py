"""Admin routes for jobs: list, inspect, cancel, requeue, wake, discard, redrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from holdfast.engine.cancel import cancel as cancel_job
from holdfast.engine.context import EngineContext
from holdfast.engine.fail import discard as discard_jobs
from holdfast.engine.maintenance.requeue import requeue as requeue_job
from holdfast.engine.reads.read import get as get_job
from holdfast.engine.reads.why import in_short
from holdfast.engine.redrive import redrive as redrive_job
from holdfast.engine.redrive import successors
from holdfast.engine.wake import wake as wake_job
from holdfast.errors import Conflict, Forbidden, NotFound
from holdfast.lifecycle import DEFAULT, STATUS, Actor, Machine, State
from holdfast.model import Job
from holdfast.model.key import Scope
from holdfast.server.api.admin import audited, filter_of, operate
from holdfast.server.api.admin_views import attempt_view, event_view, job_view, whole_view
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.store import Tx
from holdfast.wire import (
    AdminEventsResponse,
    AdminJobPage,
    AdminJobsQuery,
    AttemptsResponse,
    ClauseView,
    JobMoved,
    Redriven,
    WhyResponse,
)

# -- reads -----------------------------------------------------------------------------------------------------


async def page(server: ServerState, request: HttpRequest) -> Reply:
    query: AdminJobsQuery = request.query
    wanted, engine = await filter_of(server, query), server.engine
    place = None if query.cursor is None else await server.cursors.decode(query.cursor, wanted)
    found = await engine.reads.page(wanted, cursor=place, limit=query.limit)
    snapshots = await engine.reads.snapshots(found.jobs)
    following = None if found.next is None else await server.cursors.encode(found.next, wanted)
    now = await server.engine.reads.now()
    jobs = [job_view(job, snapshots[job.policy].machine, now) for job in found.jobs]
    return Reply(200, AdminJobPage(jobs, following))


async def get(server: ServerState, request: HttpRequest) -> Reply:
    """`payload=true` also returns the contents; this needs a separate scope and is written to the audit log."""
    engine, contents = server.engine, request.query.payload
    job = await _get_with_contents(server, request) if contents else await engine.reads.get(request.path["job_id"])
    snapshot = (await engine.reads.snapshots([job]))[job.policy]
    parts = await engine.reads.parts(job.id)
    heirs = await engine.store.read(lambda tx: successors(tx, job.id))
    return Reply(200, whole_view(job, snapshot, parts, heirs, now=await server.engine.reads.now(), contents=contents))


async def _get_with_contents(server: ServerState, request: HttpRequest) -> Job:
    if Scope.ADMIN_PAYLOAD not in request.caller.scopes:
        raise Forbidden(f"reading the contents of a job needs the scope {Scope.ADMIN_PAYLOAD}")
    job_id = request.path["job_id"]
    return await operate(server, audited(request, "job.read", job_id), lambda tx, _: get_job(tx, job_id))


async def attempts(server: ServerState, request: HttpRequest) -> Reply:
    """Also of a pruned job; then with the state names of the default lifecycle."""
    try:
        _, machine = await _known(server, request)
    except NotFound as error:
        if error.code != "job_pruned":
            raise
        machine = DEFAULT
    ended = await server.engine.reads.attempts(request.path["job_id"])
    return Reply(200, AttemptsResponse([attempt_view(attempt, machine) for attempt in ended]))


async def events(server: ServerState, request: HttpRequest) -> Reply:
    job, machine = await _known(server, request)
    limit = request.query.limit
    found = await server.engine.reads.history(job.id, after=request.query.after, limit=limit + 1)
    shown = [event_view(event, machine) for event in found[:limit]]
    return Reply(200, AdminEventsResponse(shown, shown[-1].seq if len(found) > limit else None))


async def why(server: ServerState, request: HttpRequest) -> Reply:
    job_id = request.path["job_id"]
    clauses = await server.engine.reads.why(job_id)
    views = [ClauseView(clause.name, clause.holds, clause.says) for clause in clauses]
    return Reply(200, WhyResponse(job_id, in_short(clauses), views))


async def _known(server: ServerState, request: HttpRequest) -> tuple[Job, Machine]:
    job = await server.engine.reads.get(request.path["job_id"])
    return job, (await server.engine.reads.snapshots([job]))[job.policy].machine


# -- changes ----------------------------------------------------------------------------------------------------


async def cancel(server: ServerState, request: HttpRequest) -> Reply:
    """Immediate unless it runs; then its worker is asked to stop."""
    reason = request.query.reason or "canceled"
    work = partial(cancel_job, actor=Actor.API, reason=reason)
    return await _change(server, request, "job.cancel", work, status=202, reason=reason)


async def requeue(server: ServerState, request: HttpRequest) -> Reply:
    """Skip the backoff."""
    reason = request.query.reason or "requeued"
    work = partial(requeue_job, actor=Actor.API, reason=reason)
    return await _change(server, request, "job.requeue", work, reason=reason)


async def wake(server: ServerState, request: HttpRequest) -> Reply:
    """Skip the delay; a running job will not be delayed when it is released."""
    return await _change(server, request, "job.wake", wake_job)


async def discard(server: ServerState, request: HttpRequest) -> Reply:
    """Discard the remaining retries."""
    reason = request.query.reason or "discarded"

    async def work(tx: Tx, rules: EngineContext, job_id: str) -> None:
        job = await get_job(tx, job_id)
        if not await discard_jobs(tx, rules, job_id, reason=reason):
            raise Conflict(
                f"job {job_id} is {job.state}; only a job that waits for a retry is discarded", code="not_retrying"
            )

    return await _change(server, request, "job.discard", work, reason=reason)


async def _change(
    server: ServerState,
    request: HttpRequest,
    action: str,
    work: Callable[[Tx, EngineContext, str], Awaitable[object]],
    status: int = 200,
    **detail: str,
) -> Reply:
    """Change a job with an entry in the audit log, and return its new state."""
    job_id = request.path["job_id"]

    async def change(tx: Tx, rules: EngineContext) -> Job:
        await work(tx, rules, job_id)
        return await get_job(tx, job_id)

    job = await operate(server, audited(request, action, job_id, **detail), change)
    machine = (await server.engine.reads.snapshots([job]))[job.policy].machine
    return Reply(status, JobMoved(job.id, STATUS[job.state], machine.words[State(job.state)]))


async def redrive(server: ServerState, request: HttpRequest) -> Reply:
    """Create a new job from a finished one, optionally with another payload. An idempotency key makes it repeatable."""
    job_id, body, engine = request.path["job_id"], request.body, server.engine
    made = await engine.audit.record(
        lambda tx: redrive_job(tx, engine.ctx, job_id, payload=body.payload, idempotency_key=body.idempotency_key),
        lambda made: audited(request, "job.redrive", job_id, edited=body.payload is not None, made=made.id),
    )
    return Reply(202, Redriven(made.id, made.status, job_id), ((b"location", f"/api/admin/jobs/{made.id}".encode()),))
