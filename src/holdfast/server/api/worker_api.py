"""Routes of the worker API: register, heartbeat, claim, and reports, which carry the lease token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from holdfast import wire
from holdfast.engine import NewWorker
from holdfast.errors import Forbidden, HoldfastError, InvalidField
from holdfast.model import Lease, Liveness
from holdfast.model.names import check_name, quoted
from holdfast.model.reports import Advanced, Complete, Fail, HeldLease, Rejection, Release, Settled
from holdfast.server.api import reports
from holdfast.server.api.leases import jobs_of
from holdfast.server.auth.authenticator import Caller
from holdfast.server.http.route import Handler, HttpRequest, Reply
from holdfast.server.live.long_poll import Take
from holdfast.server.live.waiting_claims import WaitingClaim
from holdfast.server.state import ServerState

Item = TypeVar("Item", Complete, Fail, Release, Rejection)
Answer = TypeVar("Answer")
Send = Callable[[str, list[Item]], Awaitable[Sequence[Answer | HoldfastError]]]  # a verb of the engine, for a worker


async def register(server: ServerState, request: HttpRequest) -> Reply:
    body: wire.WorkerRegistration = request.body
    new = NewWorker(
        name=body.name,
        kind=body.worker_type,
        capabilities=body.capabilities,
        metadata=body.metadata,
        tenants=body.tenants,
        heartbeat_seconds=server.settings.heartbeat_seconds,
        offline_seconds=server.settings.worker_offline_seconds,
    )
    worker, key = await server.engine.workers.register_with_key(new, body.queues, by=request.caller.name)
    return Reply(201, wire.WorkerRegistered(worker.id, key))


async def heartbeat(server: ServerState, request: HttpRequest) -> Reply:
    body: wire.HeartbeatBody = request.body
    if body.instance_id is not None:
        check_name(body.instance_id, "instance_id")
    beat = await server.engine.heartbeat(
        _worker(request), body.leases, liveness=_liveness(body.status), slots=body.slots
    )
    answer = wire.HeartbeatResponse(
        lost=beat.lost,
        cancel=beat.cancel,
        drain=not beat.enabled,
        server_time=server.clock.now(),
        lease_expires_at=beat.expires_at,
    )
    return Reply(200, answer)


# -- claim ------------------------------------------------------------------------------------------------------------


async def claim(server: ServerState, request: HttpRequest) -> Reply:
    """If the client has disconnected, its new leases are released: it does not know of them."""
    body: wire.ClaimBody = request.body
    waiting = WaitingClaim(
        _worker(request), _queues(request.caller, body.queues or None), body.job_types or None, body.limit
    )
    await server.claim_scopes.note(waiting)
    with server.interruptible(request.disconnected):
        leases = await server.long_poll.claim(
            _claim_once(server, request, waiting), waiting, seconds=body.wait_seconds, disconnected=request.disconnected
        )
    if not leases:
        return Reply(204)
    try:
        jobs = await jobs_of(leases, server.engine, server.policies)
    except BaseException:
        await _give_back(server, waiting.worker, leases, body)
        raise
    if request.disconnected.is_set():
        await _give_back(server, waiting.worker, leases, body)
        return Reply(204)
    return Reply(200, wire.ClaimResponse(jobs))


def _claim_once(server: ServerState, request: HttpRequest, waiting: WaitingClaim) -> Take:
    body: wire.ClaimBody = request.body
    request_id = body.request_id
    wanted: dict[str, Any] = {"queues": waiting.queues, "types": waiting.types, "instance": body.instance_id}

    async def take() -> list[Lease] | None:
        await server.auth.check_still_valid(request.caller)  # it may have been revoked meanwhile
        if request_id is not None:
            return await server.engine.claim_once(waiting.worker, request_id, limit=body.limit, **wanted)
        return await server.engine.claim(waiting.worker, limit=body.limit, at_once=True, **wanted) or None

    return take


async def _give_back(server: ServerState, worker: str, leases: list[Lease], body: wire.ClaimBody) -> None:
    held = [HeldLease(lease.id, lease.token) for lease in leases]
    await server.engine.give_back(worker, held, request=body.request_id)


# -- reports ----------------------------------------------------------------------------------------------------------


async def progress(server: ServerState, request: HttpRequest) -> Reply:
    answer: Advanced = await server.report_batching.put("progress", _worker(request), request.body)
    return Reply(200, wire.ProgressResponse(answer.id, answer.expires_at, answer.cancel_requested))


def _settling(verb: str) -> Handler:
    async def settle(server: ServerState, request: HttpRequest) -> Reply:
        answer: Settled = await server.report_batching.put(verb, _worker(request), request.body)
        [where] = await reports.settled_responses(server.policies, [answer])
        return Reply(200, where)

    return settle


complete, fail, release, reject = map(_settling, ("complete", "fail", "release", "reject"))


async def withdraw(server: ServerState, request: HttpRequest) -> Reply:
    """A key that is bound to queues ends only jobs of these queues."""
    answer = await server.engine.withdraw(_worker(request), request.body, queues=request.caller.queues)
    [where] = await reports.settled_responses(server.policies, [Settled(answer.id, answer.state)])
    return Reply(200, wire.WithdrawnResponse.of(where, asked=answer.asked))


async def report(server: ServerState, request: HttpRequest) -> Reply:
    """Several reports about one job are applied in the order of the lists."""
    body: wire.ReportsBody = request.body
    reports.check_report_size(body)
    worker, engine = _worker(request), server.engine

    async def settled(send: Send[Item, Settled], items: list[Item]) -> list[wire.ReportResult]:
        answers = await reports.send_each(partial(send, worker), items)
        return await reports.settled(server.policies, [item.id for item in items], answers)

    advanced = await reports.send_each(partial(engine.progress_many, worker), body.progress)
    answer = wire.ReportsResponse(
        progress=[reports.advanced(item.id, answer) for item, answer in zip(body.progress, advanced, strict=True)],
        complete=await settled(engine.complete_many, body.complete),
        fail=await settled(engine.fail_many, body.fail),
        release=await settled(engine.release_many, body.release),
        reject=await settled(engine.reject_many, body.reject),
    )
    server.metrics.refused.add(reports.lost_in(answer))
    return Reply(200, answer)


# -- the caller --------------------------------------------------------------------------------------------------------


def _worker(request: HttpRequest) -> str:
    if request.caller.worker is None:
        raise Forbidden("a worker key is required; register a worker to get one", code="not_a_worker")
    return request.caller.worker


def _queues(caller: Caller, wanted: list[str] | None) -> list[str] | None:
    """The requested queues; a key that is bound to queues allows no others."""
    if caller.queues is None or wanted is None:
        return wanted if caller.queues is None else list(caller.queues)
    if others := sorted(set(wanted) - set(caller.queues)):
        raise Forbidden(f"this worker key is not allowed for the queue {quoted(others[0])}", code="queue_not_allowed")
    return wanted


def _liveness(status: str) -> Liveness:
    try:
        return Liveness(status)
    except ValueError:
        known = ", ".join(Liveness)
        raise InvalidField(f"status must be one of {known}, got {quoted(status)}", field="status") from None
