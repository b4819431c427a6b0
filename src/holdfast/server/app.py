"""The ASGI application and its route table: every HTTP route of the server on one screen."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from holdfast import wire
from holdfast.errors import Malformed, NotFound
from holdfast.model.key import Scope
from holdfast.model.reports import Complete, Fail, Progress, Rejection, Release, Withdrawal
from holdfast.server.api import (
    admin_bulk,
    admin_jobs,
    admin_keys,
    admin_limits,
    admin_queues,
    admin_scale,
    admin_system,
    admin_webhooks,
    admin_workers,
    docs_routes,
    health,
    jobs,
    metrics,
    sessions,
    streams,
    worker_api,
)
from holdfast.server.extensions.mounts import MountedApp
from holdfast.server.extensions.routes import scopes_of, together
from holdfast.server.http.endpoint import Endpoint
from holdfast.server.http.problems import problem
from holdfast.server.http.reply import send_reply
from holdfast.server.http.route import (
    EVENT_STREAM,
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    PREFER,
    TRACEPARENT,
    Route,
    tagged,
)
from holdfast.server.http.router import Router
from holdfast.server.state import ServerState

UNKNOWN = "unknown"  # the path label of requests that match no route

# fmt: off
ROUTES = (
    # -- clients
    *tagged("Jobs",
    Route("POST", "/jobs", jobs.create, Scope.JOBS_CREATE, "Create a job.",
          body=wire.JobIntent, headers=(IDEMPOTENCY_KEY, PREFER, TRACEPARENT), answers={202: wire.JobAccepted},
          location=True, refuses=(402, 409)),
    Route("POST", "/jobs/batch", jobs.create_batch, Scope.JOBS_CREATE,
          "Create several jobs in one transaction: all or none.",
          body=wire.JobIntents, headers=(IDEMPOTENCY_KEY, TRACEPARENT), answers={202: wire.JobsAccepted},
          refuses=(402, 409)),
    Route("GET", "/jobs", jobs.page, Scope.JOBS_READ, "List jobs, newest first.",
          query=jobs.JobsQuery, answers={200: wire.JobPage}),
    Route("GET", "/jobs/{job_id}", jobs.get, Scope.JOBS_READ, "Get the status and the result of a job.",
          headers=(IF_NONE_MATCH, PREFER), answers={200: wire.JobView, 304: None}, refuses=(404,)),
    Route("POST", "/jobs/{job_id}/cancel", jobs.cancel, Scope.JOBS_CANCEL, "Cancel a job.",
          answers={202: wire.JobAccepted}, refuses=(404, 409)),
    Route("GET", "/jobs/{job_id}/events", streams.of_job, Scope.JOBS_READ, "Stream the events of a job until it ends.",
          answers={200: EVENT_STREAM, 204: None}, refuses=(404, 422)),
    Route("GET", "/events", streams.of_all, Scope.JOBS_READ, "Stream the events of all jobs.",
          query=streams.StreamQuery, answers={200: EVENT_STREAM}),
    ),

    # -- workers
    *tagged("Worker API",
    Route("POST", "/api/worker/register", worker_api.register, Scope.ADMIN_OPERATE,
          "Register a worker; returns its key once.",
          body=wire.WorkerRegistration, answers={201: wire.WorkerRegistered}),
    Route("POST", "/api/worker/heartbeat", worker_api.heartbeat, Scope.WORK, "Send a heartbeat and renew leases.",
          body=wire.HeartbeatBody, answers={200: wire.HeartbeatResponse}),
    Route("POST", "/api/worker/claim", worker_api.claim, Scope.WORK, "Claim jobs, with an optional long poll.",
          body=wire.ClaimBody, answers={200: wire.ClaimResponse, 204: None}, watched=True),
    Route("POST", "/api/worker/progress", worker_api.progress, Scope.WORK, "Report progress and renew the lease.",
          body=Progress, answers={200: wire.ProgressResponse}, refuses=(409,)),
    Route("POST", "/api/worker/complete", worker_api.complete, Scope.WORK, "Complete a job.",
          body=Complete, answers={200: wire.SettledResponse}, refuses=(409,)),
    Route("POST", "/api/worker/fail", worker_api.fail, Scope.WORK, "Report that a job failed.",
          body=Fail, answers={200: wire.SettledResponse}, refuses=(409,)),
    Route("POST", "/api/worker/release", worker_api.release, Scope.WORK,
          "Release a job unfinished, so that it can be claimed again.",
          body=Release, answers={200: wire.SettledResponse}, refuses=(409,)),
    Route("POST", "/api/worker/reject", worker_api.reject, Scope.WORK, "Reject a job that a policy forbids.",
          body=Rejection, answers={200: wire.SettledResponse}, refuses=(409,)),
    Route("POST", "/api/worker/withdraw", worker_api.withdraw, Scope.WORK,
          "Withdraw another job: end it, or tell its worker to stop it.",
          body=Withdrawal, answers={200: wire.WithdrawnResponse}, refuses=(404, 409)),
    Route("POST", "/api/worker/report", worker_api.report, Scope.WORK,
          "Report several outcomes in one request; each is applied independently.",
          body=wire.ReportsBody, answers={200: wire.ReportsResponse}),
    ),

    # -- operators
    *tagged("Admin",
    Route("GET", "/api/admin/jobs", admin_jobs.page, Scope.ADMIN_READ, "List jobs with all details.",
          query=wire.AdminJobsQuery, answers={200: wire.AdminJobPage}),
    Route("GET", "/api/admin/jobs/{job_id}", admin_jobs.get, Scope.ADMIN_READ, "Get a job with all details.",
          query=wire.AdminJobQuery, answers={200: wire.AdminJobWhole}, refuses=(404,)),
    Route("GET", "/api/admin/jobs/{job_id}/attempts", admin_jobs.attempts, Scope.ADMIN_READ,
          "List the finished attempts of a job.", answers={200: wire.AttemptsResponse}, refuses=(404,)),
    Route("GET", "/api/admin/jobs/{job_id}/events", admin_jobs.events, Scope.ADMIN_READ, "List the events of a job.",
          query=wire.EventsQuery, answers={200: wire.AdminEventsResponse}, refuses=(404,)),
    Route("GET", "/api/admin/jobs/{job_id}/why", admin_jobs.why, Scope.ADMIN_READ, "Explain why a job is not running.",
          answers={200: wire.WhyResponse}, refuses=(404,)),
    Route("POST", "/api/admin/jobs/{job_id}/cancel", admin_jobs.cancel, Scope.ADMIN_OPERATE, "Cancel a job.",
          query=wire.ReasonQuery, answers={202: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/requeue", admin_jobs.requeue, Scope.ADMIN_OPERATE,
          "Requeue a job that waits for a retry, to run now.",
          query=wire.ReasonQuery, answers={200: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/wake", admin_jobs.wake, Scope.ADMIN_OPERATE,
          "Run a delayed, snoozed or retrying job now.", answers={200: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/discard", admin_jobs.discard, Scope.ADMIN_OPERATE,
          "Discard the remaining retries of a job.",
          query=wire.ReasonQuery, answers={200: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/redrive", admin_jobs.redrive, Scope.ADMIN_OPERATE,
          "Redrive a finished job: create a new job from it.",
          body=wire.RedriveBody, answers={202: wire.Redriven}, location=True, refuses=(402, 404, 409)),
    Route("POST", "/api/admin/cancel", admin_bulk.cancel, Scope.ADMIN_OPERATE, "Cancel all jobs that match a filter.",
          body=wire.BulkCancelBody, answers={200: wire.BulkResponse}),
    Route("POST", "/api/admin/redrive", admin_bulk.redrive, Scope.ADMIN_OPERATE,
          "Redrive all finished jobs that match a filter.",
          body=wire.BulkRedriveBody, answers={200: wire.BulkResponse}),
    Route("GET", "/api/admin/queues", admin_queues.page, Scope.ADMIN_READ, "List the queues with their job counts.",
          answers={200: wire.QueuesResponse}),
    Route("POST", "/api/admin/queues/{queue}/pause", admin_queues.pause, Scope.ADMIN_OPERATE,
          "Pause a queue: its jobs are not claimed.",
          query=wire.TenantQuery, answers={200: wire.QueueMoved}),
    Route("POST", "/api/admin/queues/{queue}/resume", admin_queues.resume, Scope.ADMIN_OPERATE,
          "Resume a paused queue.",
          query=wire.TenantQuery, answers={200: wire.QueueMoved}),
    Route("GET", "/api/admin/limits", admin_limits.page, Scope.ADMIN_READ,
          "List the limits in force, and the weights of tenants.", answers={200: wire.LimitsResponse}),
    Route("PUT", "/api/admin/limits/{limit}", admin_limits.put, Scope.ADMIN_OPERATE,
          "Set a limit, or lift it; what the app declares is in force again after a reset.",
          body=wire.LimitBody, answers={200: wire.AdminLimit}, refuses=(404,)),
    Route("DELETE", "/api/admin/limits/{limit}", admin_limits.reset, Scope.ADMIN_OPERATE,
          "Reset a limit to what the app declares.", answers={200: wire.AdminLimit}, refuses=(404,)),
    Route("GET", "/api/admin/scale", admin_scale.scale, Scope.ADMIN_READ,
          "Get the backlog and the slots wanted, for an autoscaler.",
          query=wire.ScaleQuery, answers={200: wire.ScaleResponse}),
    Route("GET", "/api/admin/workers", admin_workers.page, Scope.ADMIN_READ, "List workers.",
          answers={200: wire.WorkersResponse}),
    Route("GET", "/api/admin/workers/{worker_id}", admin_workers.get, Scope.ADMIN_READ,
          "Get a worker and the jobs that it holds.", answers={200: wire.WorkerWhole}, refuses=(404,)),
    Route("POST", "/api/admin/workers/{worker_id}/disable", admin_workers.disable, Scope.ADMIN_OPERATE,
          "Disable a worker: it finishes its jobs and claims no more.", answers={200: wire.WorkerView}, refuses=(404,)),
    Route("POST", "/api/admin/workers/{worker_id}/enable", admin_workers.enable, Scope.ADMIN_OPERATE,
          "Enable a disabled worker.", answers={200: wire.WorkerView}, refuses=(404,)),
    Route("POST", "/api/admin/workers/{worker_id}/revoke", admin_workers.revoke, Scope.ADMIN_OPERATE,
          "Revoke the keys of a worker and disable it.", answers={200: wire.WorkerView}, refuses=(404,)),
    query=wire.Nothing),
    *tagged("Keys",
    Route("GET", "/api/admin/keys", admin_keys.page, Scope.ADMIN_KEYS, "List keys, without their secrets.",
          answers={200: wire.KeysResponse}),
    Route("POST", "/api/admin/keys", admin_keys.create, Scope.ADMIN_KEYS, "Create a key; returns it once.",
          body=wire.KeyIntent, answers={201: wire.KeyIssued}, refuses=(404,)),
    Route("POST", "/api/admin/keys/{key_id}/rotate", admin_keys.rotate, Scope.ADMIN_KEYS,
          "Rotate a key: issue a replacement; the old key expires after the overlap.",
          query=wire.RotateQuery, answers={201: wire.KeyIssued}, refuses=(404, 409)),
    Route("POST", "/api/admin/keys/{key_id}/revoke", admin_keys.revoke, Scope.ADMIN_KEYS, "Revoke a key.",
          answers={200: wire.KeyView}, refuses=(404,)),
    query=wire.Nothing),
    *tagged("Admin",
    Route("GET", "/api/admin/lifecycles", admin_system.lifecycles, Scope.ADMIN_READ, "List the lifecycles.",
          answers={200: wire.LifecyclesResponse}),
    Route("GET", "/api/admin/lifecycles/{name}", admin_system.lifecycle, Scope.ADMIN_READ,
          "Get a lifecycle: its states, transitions, policy and diagram.",
          answers={200: wire.LifecycleView}, refuses=(404,)),
    Route("GET", "/api/admin/settings", admin_system.settings, Scope.ADMIN_READ, "List the effective settings.",
          answers={200: wire.SettingsResponse}),
    Route("GET", "/api/admin/audit", admin_system.audit, Scope.ADMIN_READ, "List the audit log, newest first.",
          query=wire.AuditQuery, answers={200: wire.AuditResponse}),
    Route("GET", "/api/admin/audit/verify", admin_system.verify, Scope.ADMIN_READ,
          "Verify the hash chain of the audit log.",
          query=wire.VerifyQuery, answers={200: wire.VerifyResponse}),
    query=wire.Nothing),

    # -- browser sessions
    *tagged("Keys",
    Route("POST", "/session", sessions.sign_in, None, "Sign in with a key; sets a session cookie.",
          body=wire.SignIn, answers={201: wire.SessionView}, refuses=(401, 403, 429, 503)),
    Route("GET", "/session", sessions.who, None, "Get the current session and its CSRF token.",
          answers={200: wire.SessionView}, refuses=(401, 503)),
    Route("DELETE", "/session", sessions.sign_out, None, "Sign out.",
          answers={204: None}, refuses=(401, 403, 503)),
    ),

    # -- webhooks
    *tagged("Webhooks",
    Route("POST", "/api/admin/webhooks", admin_webhooks.subscribe, Scope.ADMIN_WEBHOOKS,
          "Create a webhook; returns its signing secret once.",
          body=wire.WebhookSubscription, answers={201: wire.WebhookSigned}, location=True,
          refuses=(409,)),
    Route("GET", "/api/admin/webhooks", admin_webhooks.every, Scope.ADMIN_WEBHOOKS, "List webhooks.",
          answers={200: wire.WebhooksResponse}),
    Route("GET", "/api/admin/webhooks/{webhook_id}", admin_webhooks.get, Scope.ADMIN_WEBHOOKS, "Get a webhook.",
          answers={200: wire.WebhookView}, refuses=(404,)),
    Route("POST", "/api/admin/webhooks/{webhook_id}", admin_webhooks.change, Scope.ADMIN_WEBHOOKS,
          "Update, enable or disable a webhook.",
          body=wire.WebhookChange, answers={200: wire.WebhookView}, refuses=(404,)),
    Route("DELETE", "/api/admin/webhooks/{webhook_id}", admin_webhooks.drop, Scope.ADMIN_WEBHOOKS, "Delete a webhook.",
          answers={204: None}, refuses=(404,)),
    Route("POST", "/api/admin/webhooks/{webhook_id}/rotate", admin_webhooks.rotate, Scope.ADMIN_WEBHOOKS,
          "Rotate the signing secret of a webhook; both secrets sign during the overlap.",
          query=wire.RotateQuery, answers={200: wire.WebhookSigned}, refuses=(404,)),
    Route("POST", "/api/admin/webhooks/{webhook_id}/test", admin_webhooks.test, Scope.ADMIN_WEBHOOKS,
          "Send a test message and return the response.",
          answers={200: wire.DeliveryView}, refuses=(404,), watched=True),
    Route("GET", "/api/admin/webhooks/{webhook_id}/deliveries", admin_webhooks.deliveries, Scope.ADMIN_WEBHOOKS,
          "List the deliveries of a webhook, newest first.",
          query=wire.DeliveriesQuery, answers={200: wire.DeliveriesResponse}, refuses=(404,)),
    Route("POST", "/api/admin/deliveries/{delivery_id}/replay", admin_webhooks.replay, Scope.ADMIN_WEBHOOKS,
          "Replay a delivery with its original id.", answers={202: wire.DeliveryView}, refuses=(404, 409)),
    ),

    # -- API documentation: no key needed
    *tagged("Health",
    Route("GET", "/", docs_routes.root, None, "Redirect to the documentation.", answers={307: None}, hidden=True),
    Route("GET", "/openapi.json", docs_routes.openapi, None, "Get the OpenAPI document.",
          headers=(IF_NONE_MATCH,), answers={200: "application/json", 304: None}),
    Route("GET", "/docs", docs_routes.docs, None, "Read the API documentation.",
          headers=(IF_NONE_MATCH,), answers={200: "text/html; charset=utf-8", 304: None}),
    ),

    # -- live events for operators
    *tagged("Admin",
    Route("GET", "/api/admin/events", streams.for_operators, Scope.ADMIN_READ,
          "Stream the events of all jobs and workers.",
          query=streams.OperatorStreamQuery, answers={200: EVENT_STREAM}),
    ),

    # -- health: no key needed
    *tagged("Health",
    Route("GET", "/livez", health.livez, None, "Liveness: the process is running.", answers={200: wire.Alive}),
    Route("GET", "/readyz", health.readyz, None, "Readiness: the server can take requests.",
          answers={200: wire.Alive}, refuses=(503,)),
    Route("GET", "/health", health.health, None, "Health of the server, the database, the workers and the queues.",
          answers={200: wire.Health, 503: wire.Health}),
    Route("GET", "/api/health", health.health, None,
          "The same as `/health`.", answers={200: wire.Health, 503: wire.Health}),
    Route("GET", "/metrics", metrics.scrape, Scope.ADMIN_READ,
          "Metrics for Prometheus; no key needed on a loopback address.",
          answers={200: metrics.TEXT}, local=True),
    Route("GET", "/metrics/worker", metrics.scrape_worker, Scope.ADMIN_READ,
          "Metrics of the worker that `holdfast dev` runs.",
          answers={200: metrics.TEXT}, refuses=(404,), local=True),
    ),
)
# fmt: on


class HttpApp:
    """The server as an ASGI application."""

    def __init__(self, server: ServerState) -> None:
        routes, mounts = server.extension_routes, server.mounts
        server.routes = together(ROUTES, routes, mounts)
        server.extension_scopes = scopes_of((*routes, *mounts), server.about_scopes)
        endpoints: dict[str, dict[str, Endpoint]] = {}
        for route in server.routes:
            endpoints.setdefault(route.path, {})[route.method] = Endpoint(server, route)
        self._server = server
        self._router = Router({path: MethodRouter(server, by_method) for path, by_method in endpoints.items()})
        self._mounts = {mount.path: MountedApp(server, mount) for mount in mounts}

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """Not a coroutine itself: each one around a request costs time whenever the request waits."""
        found = self._router.find(scope["path"])
        if found is not None:
            endpoint, scope["path_params"] = found
            return endpoint(scope, receive, send)
        mounted = self._mounted(scope["path"])
        if mounted is not None:
            return mounted(scope, receive, send)
        if b"%" in scope.get("raw_path", b"") and (found := self._router.find_encoded(scope["raw_path"])) is not None:
            endpoint, scope["path_params"] = found
            return endpoint(scope, receive, send)
        return self._not_found(scope, send)

    def _mounted(self, path: str) -> MountedApp | None:
        """Mounts do not nest, so at most one matches a path."""
        return next((one for at, one in self._mounts.items() if path == at or path.startswith(f"{at}/")), None)

    async def _not_found(self, scope: Any, send: Any) -> None:
        request_id = self._server.request_id()
        error = NotFound("no such route; /docs lists all routes", code="route_not_found")
        self._server.metrics.rejected_early(scope["method"], UNKNOWN, 404)
        await send_reply(problem(error, request_id), send, request_id)


class MethodRouter:
    """The routes of one path, by method."""

    def __init__(self, server: ServerState, by_method: dict[str, Endpoint]) -> None:
        self._server, self._by_method = server, by_method
        self._template = next(iter(by_method.values())).template
        if "GET" in by_method:
            by_method["HEAD"] = by_method["GET"]

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        endpoint = self._by_method.get(scope["method"])
        return self._not_allowed(scope, send) if endpoint is None else endpoint(scope, receive, send)

    async def _not_allowed(self, scope: Any, send: Any) -> None:
        request_id, allowed = self._server.request_id(), ", ".join(self._by_method)
        self._server.metrics.rejected_early(scope["method"], self._template, 405)
        reply = problem(Malformed(f"allowed methods: {allowed}", code="method_not_allowed"), request_id)
        await send_reply(reply._replace(headers=((b"allow", allowed.encode()),)), send, request_id)
