"""Health routes: liveness, readiness and health; answered from memory, without the database."""

from __future__ import annotations

from holdfast.errors import StoreUnavailable
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import Alive, Health, JobCounts

OK, DOWN = "ok", "down"


async def livez(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(200, Alive(OK))


async def readyz(server: ServerState, request: HttpRequest) -> Reply:
    if server.stopping:
        raise StoreUnavailable("this server is about to stop", code="not_ready")
    if (complaint := _complaint(server)) is not None:
        raise StoreUnavailable(complaint, code="not_ready")
    return Reply(200, Alive(OK))


def _complaint(server: ServerState) -> str | None:
    return server.health.complaint() or server.loops.complaint()


async def health(server: ServerState, request: HttpRequest) -> Reply:
    monitor = server.health
    status = OK if _complaint(server) is None else DOWN
    seen = Health(status, OK if monitor.alive else DOWN)
    seen.failing_loops = server.loops.failing or None
    seen.weak_settings = monitor.weak_settings or None
    seen.extensions = server.extension_health.fields or None
    seen.missing_extensions = monitor.missing_extensions or None
    if server.dispatch is not None:  # optional: it only delivers hints
        seen.broker = OK if server.dispatch.up else DOWN
    if (vitals := monitor.vitals) is not None:
        seen.checked_at, seen.active_workers, seen.pending_jobs = vitals.seen_at, vitals.workers, vitals.pending
        seen.jobs = JobCounts(vitals.waiting, vitals.later, vitals.running, vitals.died)
    seen.storage = monitor.storage
    return Reply(200 if status == OK else 503, seen)
