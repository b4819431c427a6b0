"""All routes, on one screen."""

from __future__ import annotations

from typing import Any

from starlette.routing import Route as Path
from starlette.routing import Router

from holdfast import wire
from holdfast.errors import Malformed, NotFound
from holdfast.model.key import Scope
from holdfast.server import health, jobs, stream, work
from holdfast.server.endpoint import Endpoint, send_reply
from holdfast.server.problems import problem
from holdfast.server.route import EVENT_STREAM, Route
from holdfast.server.server import Server

# fmt: off
ROUTES = (
    # -- the control plane: clients
    Route("POST", "/jobs", jobs.create, Scope.JOBS_CREATE, "Hand in a job.",
          body=wire.JobIntent, answers={202: wire.JobAccepted}, refuses=(409,)),
    Route("POST", "/jobs/batch", jobs.create_batch, Scope.JOBS_CREATE, "Hand in many jobs, all or none.",
          body=wire.JobIntents, answers={202: wire.JobsAccepted}, refuses=(409,)),
    Route("GET", "/jobs", jobs.page, Scope.JOBS_READ, "List jobs, the newest first.",
          query=jobs.JobsQuery, answers={200: wire.JobPage}),
    Route("GET", "/jobs/{job_id}", jobs.get, Scope.JOBS_READ, "Ask after a job.",
          answers={200: wire.JobView, 304: None}, refuses=(404,)),
    Route("POST", "/jobs/{job_id}/cancel", jobs.cancel, Scope.JOBS_CANCEL, "Cancel a job.",
          answers={202: wire.JobAccepted}, refuses=(404, 409)),
    Route("GET", "/jobs/{job_id}/events", stream.of_job, Scope.JOBS_READ, "Watch a job until it ends.",
          answers={200: EVENT_STREAM}, refuses=(404,)),
    Route("GET", "/events", stream.of_all, Scope.JOBS_READ, "Watch all jobs.", answers={200: EVENT_STREAM}),

    # -- the worker API
    Route("POST", "/api/worker/register", work.register, Scope.ADMIN_OPERATE, "Register a worker; shows its key.",
          body=wire.WorkerRegistration, answers={201: wire.WorkerRegistered}),
    Route("POST", "/api/worker/heartbeat", work.heartbeat, Scope.WORK, "Say that you live, and renew your leases.",
          body=wire.HeartbeatBody, answers={200: wire.HeartbeatAnswer}),
    Route("POST", "/api/worker/claim", work.claim, Scope.WORK, "Get jobs to do, waiting for some if need be.",
          body=wire.ClaimBody, answers={200: wire.ClaimAnswer, 204: None}, watched=True),
    Route("POST", "/api/worker/progress", work.progress, Scope.WORK, "Say how far a job is; extends its lease.",
          body=wire.ProgressBody, answers={200: wire.ProgressAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/complete", work.complete, Scope.WORK, "A job is done.",
          body=wire.CompleteBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/fail", work.fail, Scope.WORK, "A job has failed.",
          body=wire.FailBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/release", work.release, Scope.WORK, "Give a job back unfinished.",
          body=wire.ReleaseBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/reject", work.reject, Scope.WORK, "Policy says no to a job.",
          body=wire.RejectBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/report", work.report, Scope.WORK, "Many words at once, each settled by itself.",
          body=wire.ReportsBody, answers={200: wire.ReportsAnswer}),

    # -- health: anybody
    Route("GET", "/livez", health.livez, None, "The process runs."),
)
# fmt: on


class HttpApp:
    """The server as an ASGI application."""

    def __init__(self, server: Server) -> None:
        by_path: dict[str, dict[str, Endpoint]] = {}
        for route in ROUTES:
            by_path.setdefault(route.path, {})[route.method] = Endpoint(server, route)
        self._server = server
        self._router = Router(
            [Path(path, OnePath(server, by_method)) for path, by_method in by_path.items()],
            redirect_slashes=False,
            default=self._nothing_here,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._router(scope, receive, send)

    async def _nothing_here(self, scope: Any, receive: Any, send: Any) -> None:
        request_id = self._server.request_id()
        error = NotFound("there is no such route; /docs lists them", code="route_not_found")
        await send_reply(problem(error, request_id), send, request_id)


class OnePath:
    """The routes of one path, by method."""

    def __init__(self, server: Server, by_method: dict[str, Endpoint]) -> None:
        self._server, self._by_method = server, by_method
        if "GET" in by_method:
            by_method["HEAD"] = by_method["GET"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        endpoint = self._by_method.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        request_id, allowed = self._server.request_id(), ", ".join(self._by_method)
        reply = problem(Malformed(f"this path takes {allowed}", code="method_not_allowed"), request_id)
        await send_reply(reply._replace(headers=((b"allow", allowed.encode()),)), send, request_id)
