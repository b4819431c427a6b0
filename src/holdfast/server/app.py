"""All routes, on one screen."""

from __future__ import annotations

from typing import Any

from holdfast import wire
from holdfast.errors import Malformed, NotFound
from holdfast.model.key import Scope
from holdfast.server.api import (
    admin_bulk,
    admin_jobs,
    admin_keys,
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
from holdfast.server.http.endpoint import Endpoint, send_reply
from holdfast.server.http.problems import problem
from holdfast.server.http.route import (
    EVENT_STREAM,
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    LAST_EVENT_ID,
    PREFER,
    TRACEPARENT,
    Route,
    tagged,
)
from holdfast.server.http.router import Router
from holdfast.server.state import ServerState

UNKNOWN = "unknown"  # in the metrics, all paths where nothing is

# fmt: off
ROUTES = (
    # -- the control plane: clients
    *tagged("Jobs",
    Route("POST", "/jobs", jobs.create, Scope.JOBS_CREATE, "Hand in a job.",
          body=wire.JobIntent, headers=(IDEMPOTENCY_KEY, PREFER, TRACEPARENT), answers={202: wire.JobAccepted},
          refuses=(409,)),
    Route("POST", "/jobs/batch", jobs.create_batch, Scope.JOBS_CREATE, "Hand in many jobs, all or none.",
          body=wire.JobIntents, headers=(IDEMPOTENCY_KEY, TRACEPARENT), answers={202: wire.JobsAccepted},
          refuses=(409,)),
    Route("GET", "/jobs", jobs.page, Scope.JOBS_READ, "List jobs, the newest first.",
          query=jobs.JobsQuery, answers={200: wire.JobPage}),
    Route("GET", "/jobs/{job_id}", jobs.get, Scope.JOBS_READ, "Ask after a job.",
          headers=(IF_NONE_MATCH, PREFER), answers={200: wire.JobView, 304: None}, refuses=(404,)),
    Route("POST", "/jobs/{job_id}/cancel", jobs.cancel, Scope.JOBS_CANCEL, "Cancel a job.",
          answers={202: wire.JobAccepted}, refuses=(404, 409)),
    Route("GET", "/jobs/{job_id}/events", streams.of_job, Scope.JOBS_READ, "Watch a job until it ends.",
          headers=(LAST_EVENT_ID,), answers={200: EVENT_STREAM, 204: None}, refuses=(404, 422)),
    Route("GET", "/events", streams.of_all, Scope.JOBS_READ, "Watch all jobs.",
          query=streams.StreamQuery, headers=(LAST_EVENT_ID,), answers={200: EVENT_STREAM}),
    ),

    # -- the worker API
    *tagged("Worker API",
    Route("POST", "/api/worker/register", worker_api.register, Scope.ADMIN_OPERATE, "Register a worker; shows its key.",
          body=wire.WorkerRegistration, answers={201: wire.WorkerRegistered}),
    Route("POST", "/api/worker/heartbeat", worker_api.heartbeat, Scope.WORK, "Send a heartbeat; renews your leases.",
          body=wire.HeartbeatBody, answers={200: wire.HeartbeatAnswer}),
    Route("POST", "/api/worker/claim", worker_api.claim, Scope.WORK, "Get jobs to do, waiting for some if need be.",
          body=wire.ClaimBody, answers={200: wire.ClaimAnswer, 204: None}, watched=True),
    Route("POST", "/api/worker/progress", worker_api.progress, Scope.WORK, "Say how far a job is; extends its lease.",
          body=wire.ProgressBody, answers={200: wire.ProgressAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/complete", worker_api.complete, Scope.WORK, "A job is done.",
          body=wire.CompleteBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/fail", worker_api.fail, Scope.WORK, "A job has failed.",
          body=wire.FailBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/release", worker_api.release, Scope.WORK, "Give a job back unfinished.",
          body=wire.ReleaseBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/reject", worker_api.reject, Scope.WORK, "Policy says no to a job.",
          body=wire.RejectBody, answers={200: wire.SettledAnswer}, refuses=(409,)),
    Route("POST", "/api/worker/withdraw", worker_api.withdraw, Scope.WORK, "End the waiting work of another job.",
          body=wire.WithdrawBody, answers={200: wire.WithdrawnAnswer}, refuses=(404, 409)),
    Route("POST", "/api/worker/report", worker_api.report, Scope.WORK, "Many words at once, each settled by itself.",
          body=wire.ReportsBody, answers={200: wire.ReportsAnswer}),
    ),

    # -- the admin API: operators
    *tagged("Admin",
    Route("GET", "/api/admin/jobs", admin_jobs.page, Scope.ADMIN_READ, "List jobs, as operators see them.",
          query=wire.AdminJobsQuery, answers={200: wire.AdminJobPage}),
    Route("GET", "/api/admin/jobs/{job_id}", admin_jobs.get, Scope.ADMIN_READ, "Everything about a job.",
          query=wire.AdminJobQuery, answers={200: wire.AdminJobWhole}, refuses=(404,)),
    Route("GET", "/api/admin/jobs/{job_id}/attempts", admin_jobs.attempts, Scope.ADMIN_READ,
          "The executions of a job that have ended.",
          query=wire.Nothing, answers={200: wire.AttemptsAnswer}, refuses=(404,)),
    Route("GET", "/api/admin/jobs/{job_id}/events", admin_jobs.events, Scope.ADMIN_READ, "The history of a job.",
          query=wire.EventsQuery, answers={200: wire.AdminEventsAnswer}, refuses=(404,)),
    Route("GET", "/api/admin/jobs/{job_id}/why", admin_jobs.why, Scope.ADMIN_READ, "Why a job does not run now.",
          query=wire.Nothing, answers={200: wire.WhyAnswer}, refuses=(404,)),
    Route("POST", "/api/admin/jobs/{job_id}/cancel", admin_jobs.cancel, Scope.ADMIN_OPERATE, "Cancel a job.",
          query=wire.ReasonQuery, answers={202: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/requeue", admin_jobs.requeue, Scope.ADMIN_OPERATE, "Retry a job at once.",
          query=wire.ReasonQuery, answers={200: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/wake", admin_jobs.wake, Scope.ADMIN_OPERATE,
          "Let a job run now that is delayed, snoozed, or waits for a retry.",
          query=wire.Nothing, answers={200: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/discard", admin_jobs.discard, Scope.ADMIN_OPERATE,
          "Give up on the retries that a job has left.",
          query=wire.ReasonQuery, answers={200: wire.JobMoved}, refuses=(404, 409)),
    Route("POST", "/api/admin/jobs/{job_id}/redrive", admin_jobs.redrive, Scope.ADMIN_OPERATE,
          "Do a finished job again, as a new one.",
          query=wire.Nothing, body=wire.RedriveBody, answers={202: wire.Redriven}, refuses=(404, 409)),
    Route("POST", "/api/admin/cancel", admin_bulk.cancel, Scope.ADMIN_OPERATE, "Cancel all jobs that a filter finds.",
          query=wire.Nothing, body=wire.BulkCancelBody, answers={200: wire.BulkAnswer}),
    Route("POST", "/api/admin/redrive", admin_bulk.redrive, Scope.ADMIN_OPERATE,
          "Do all finished jobs again that a filter finds.",
          query=wire.Nothing, body=wire.BulkRedriveBody, answers={200: wire.BulkAnswer}),
    Route("GET", "/api/admin/queues", admin_queues.page, Scope.ADMIN_READ, "What waits where.",
          query=wire.Nothing, answers={200: wire.QueuesAnswer}),
    Route("POST", "/api/admin/queues/{queue}/pause", admin_queues.pause, Scope.ADMIN_OPERATE, "Hold a queue back.",
          query=wire.TenantQuery, answers={200: wire.QueueMoved}),
    Route("POST", "/api/admin/queues/{queue}/resume", admin_queues.resume, Scope.ADMIN_OPERATE, "Open a queue again.",
          query=wire.TenantQuery, answers={200: wire.QueueMoved}),
    Route("GET", "/api/admin/scale", admin_scale.scale, Scope.ADMIN_READ, "How many workers are wanted.",
          query=wire.ScaleQuery, answers={200: wire.ScaleAnswer}),
    Route("GET", "/api/admin/workers", admin_workers.page, Scope.ADMIN_READ, "List the workers.",
          query=wire.Nothing, answers={200: wire.WorkersAnswer}),
    Route("GET", "/api/admin/workers/{worker_id}", admin_workers.get, Scope.ADMIN_READ, "A worker, and what it holds.",
          query=wire.Nothing, answers={200: wire.WorkerWhole}, refuses=(404,)),
    Route("POST", "/api/admin/workers/{worker_id}/disable", admin_workers.disable, Scope.ADMIN_OPERATE,
          "Let a worker claim nothing more.", query=wire.Nothing, answers={200: wire.WorkerView}, refuses=(404,)),
    Route("POST", "/api/admin/workers/{worker_id}/enable", admin_workers.enable, Scope.ADMIN_OPERATE,
          "Let a worker claim again.", query=wire.Nothing, answers={200: wire.WorkerView}, refuses=(404,)),
    Route("POST", "/api/admin/workers/{worker_id}/revoke", admin_workers.revoke, Scope.ADMIN_OPERATE,
          "Take a worker's keys back, and disable it.",
          query=wire.Nothing, answers={200: wire.WorkerView}, refuses=(404,)),
    ),
    *tagged("Keys",
    Route("GET", "/api/admin/keys", admin_keys.page, Scope.ADMIN_KEYS, "List the keys, without what makes them keys.",
          query=wire.Nothing, answers={200: wire.KeysAnswer}),
    Route("POST", "/api/admin/keys", admin_keys.create, Scope.ADMIN_KEYS, "Make a key; shows it once.",
          query=wire.Nothing, body=wire.KeyIntent, answers={201: wire.KeyIssued}, refuses=(404,)),
    Route("POST", "/api/admin/keys/{key_id}/rotate", admin_keys.rotate, Scope.ADMIN_KEYS,
          "Make the heir of a key, and let the old one end.",
          query=wire.RotateQuery, answers={201: wire.KeyIssued}, refuses=(404, 409)),
    Route("POST", "/api/admin/keys/{key_id}/revoke", admin_keys.revoke, Scope.ADMIN_KEYS, "Take a key back.",
          query=wire.Nothing, answers={200: wire.KeyView}, refuses=(404,)),
    ),
    *tagged("Admin",
    Route("GET", "/api/admin/lifecycles", admin_system.lifecycles, Scope.ADMIN_READ, "How jobs may move.",
          query=wire.Nothing, answers={200: wire.LifecyclesAnswer}),
    Route("GET", "/api/admin/lifecycles/{name}", admin_system.lifecycle, Scope.ADMIN_READ,
          "A lifecycle: words, moves, policy, diagram.",
          query=wire.Nothing, answers={200: wire.LifecycleView}, refuses=(404,)),
    Route("GET", "/api/admin/settings", admin_system.settings, Scope.ADMIN_READ, "The settings in force.",
          query=wire.Nothing, answers={200: wire.SettingsAnswer}),
    Route("GET", "/api/admin/audit", admin_system.audit, Scope.ADMIN_READ, "What operators did, the newest first.",
          query=wire.AuditQuery, answers={200: wire.AuditAnswer}),
    Route("GET", "/api/admin/audit/verify", admin_system.verify, Scope.ADMIN_READ, "Has anybody changed the audit?",
          query=wire.VerifyQuery, answers={200: wire.VerifyAnswer}),

    ),

    # -- sessions: people with a browser
    *tagged("Sessions",
    Route("POST", "/session", sessions.sign_in, None, "Sign in with a key; sets a cookie.",
          body=wire.SignIn, answers={201: wire.SessionView}, refuses=(401, 403, 429, 503)),
    Route("GET", "/session", sessions.who, None, "Who is signed in, and the CSRF token.",
          answers={200: wire.SessionView}, refuses=(401, 503)),
    Route("DELETE", "/session", sessions.sign_out, None, "Sign out.",
          answers={204: None}, refuses=(401, 403, 503)),
    ),

    # -- webhooks: operators
    *tagged("Webhooks",
    Route("POST", "/api/admin/webhooks", admin_webhooks.subscribe, Scope.ADMIN_WEBHOOKS,
          "Subscribe a webhook; shows its secret.",
          body=wire.WebhookSubscription, answers={201: wire.WebhookSigned}, refuses=(409,)),
    Route("GET", "/api/admin/webhooks", admin_webhooks.every, Scope.ADMIN_WEBHOOKS, "List the webhooks.",
          answers={200: wire.WebhooksAnswer}),
    Route("GET", "/api/admin/webhooks/{webhook_id}", admin_webhooks.get, Scope.ADMIN_WEBHOOKS, "Look at a webhook.",
          answers={200: wire.WebhookView}, refuses=(404,)),
    Route("POST", "/api/admin/webhooks/{webhook_id}", admin_webhooks.change, Scope.ADMIN_WEBHOOKS,
          "Change a webhook, or switch it off and on.",
          body=wire.WebhookChange, answers={200: wire.WebhookView}, refuses=(404,)),
    Route("DELETE", "/api/admin/webhooks/{webhook_id}", admin_webhooks.drop, Scope.ADMIN_WEBHOOKS, "Delete a webhook.",
          answers={204: None}, refuses=(404,)),
    Route("POST", "/api/admin/webhooks/{webhook_id}/rotate", admin_webhooks.rotate, Scope.ADMIN_WEBHOOKS,
          "Give a webhook a new secret; the old one signs beside it for a while.",
          query=wire.RotateQuery, answers={200: wire.WebhookSigned}, refuses=(404,)),
    Route("POST", "/api/admin/webhooks/{webhook_id}/test", admin_webhooks.test, Scope.ADMIN_WEBHOOKS,
          "Send a test message now, and see what comes back.",
          answers={200: wire.DeliveryView}, refuses=(404,), watched=True),
    Route("GET", "/api/admin/webhooks/{webhook_id}/deliveries", admin_webhooks.deliveries, Scope.ADMIN_WEBHOOKS,
          "What was sent to a webhook, the newest first.",
          query=wire.DeliveriesQuery, answers={200: wire.DeliveriesAnswer}, refuses=(404,)),
    Route("POST", "/api/admin/deliveries/{delivery_id}/replay", admin_webhooks.replay, Scope.ADMIN_WEBHOOKS,
          "Send a message once more, under its old id.", answers={202: wire.DeliveryView}, refuses=(404, 409)),
    ),

    # -- the description of all this: anybody
    *tagged("Health",
    Route("GET", "/", docs_routes.root, None, "To the documentation.", answers={307: None}, hidden=True),
    Route("GET", "/openapi.json", docs_routes.openapi, None, "This description, for programs.",
          headers=(IF_NONE_MATCH,), answers={200: "application/json", 304: None}),
    Route("GET", "/docs", docs_routes.docs, None, "This description, for people.",
          headers=(IF_NONE_MATCH,), answers={200: "text/html; charset=utf-8", 304: None}),
    ),

    # -- live, for operators
    *tagged("Admin",
    Route("GET", "/api/admin/events", streams.for_operators, Scope.ADMIN_READ, "Watch all jobs and all workers.",
          query=streams.OperatorStreamQuery, headers=(LAST_EVENT_ID,), answers={200: EVENT_STREAM}),

    ),

    # -- health: anybody
    *tagged("Health",
    Route("GET", "/livez", health.livez, None, "The process runs.", answers={200: wire.Alive}),
    Route("GET", "/readyz", health.readyz, None, "Requests may be sent here.",
          answers={200: wire.Alive}, refuses=(503,)),
    Route("GET", "/health", health.health, None, "What this server sees.",
          answers={200: wire.Health, 503: wire.Health}),
    Route("GET", "/api/health", health.health, None, "The same.", answers={200: wire.Health, 503: wire.Health}),
    Route("GET", "/metrics", metrics.scrape, Scope.ADMIN_READ, "For Prometheus; open on a loopback address.",
          answers={200: metrics.TEXT}, local=True),
    Route("GET", "/metrics/worker", metrics.scrape_worker, Scope.ADMIN_READ,
          "The same of the worker that `holdfast dev` runs.",
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
        by_path: dict[str, dict[str, Endpoint]] = {}
        for route in server.routes:
            by_path.setdefault(route.path, {})[route.method] = Endpoint(server, route)
        self._server = server
        self._paths = Router({path: MethodRouter(server, by_method) for path, by_method in by_path.items()})
        self._mounts = {mount.path: MountedApp(server, mount) for mount in mounts}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        found = self._paths.find(scope["path"])
        if found is None:
            if (mounted := self._mounted(scope["path"])) is not None:
                await mounted(scope, receive, send)
            else:
                await self._nothing_here(scope, send)
            return
        one_path, scope["path_params"] = found
        await one_path(scope, receive, send)

    def _mounted(self, path: str) -> MountedApp | None:
        """No mount is inside another: at most one is above a path."""
        return next((one for at, one in self._mounts.items() if path == at or path.startswith(f"{at}/")), None)

    async def _nothing_here(self, scope: Any, send: Any) -> None:
        request_id = self._server.request_id()
        error = NotFound("there is no such route; /docs lists them", code="route_not_found")
        self._server.metrics.rejected_early(scope["method"], UNKNOWN, 404)
        await send_reply(problem(error, request_id), send, request_id)


class MethodRouter:
    """The routes of one path, by method."""

    def __init__(self, server: ServerState, by_method: dict[str, Endpoint]) -> None:
        self._server, self._by_method = server, by_method
        self._template = next(iter(by_method.values())).template
        if "GET" in by_method:
            by_method["HEAD"] = by_method["GET"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        endpoint = self._by_method.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        request_id, allowed = self._server.request_id(), ", ".join(self._by_method)
        self._server.metrics.rejected_early(scope["method"], self._template, 405)
        reply = problem(Malformed(f"this path takes {allowed}", code="method_not_allowed"), request_id)
        await send_reply(reply._replace(headers=((b"allow", allowed.encode()),)), send, request_id)
