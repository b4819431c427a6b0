"""Generates the examples of the OpenAPI document from the schemas and the names of fields."""

from __future__ import annotations

from typing import Any

from holdfast.model.key import Kind, text_of

JOB = "01a1de61-081d-7ef1-9afc-d9ab2f5509bd"
WORKER = "2243f656-181b-435c-9f97-f600015c57ba"
TOKEN = "b7a0c9de-5c5b-4f0e-9f63-0d5f0a1c2e3d"  # noqa: S105  (not a real one)
TIME = "2026-11-15T08:44:23Z"
KEY_ID, SECRET = "4f9c2d7ab81e06c3", "0123456789abcdef" * 4  # not real ones
PATH_EXAMPLES = {
    "jobId": JOB,
    "queue": "mail",
    "workerId": WORKER,
    "keyId": KEY_ID,
    "limit": "tenant:acme",
    "name": "default",
    "webhookId": WORKER,
    "deliveryId": JOB,
}

# Examples by field name; other fields get a value from their schema.
NAMED: dict[str, Any] = {
    "actor": "admin secret",
    "answer": "Queue 'mail' is paused since 08:44:23 UTC by alice.",
    "apiKey": text_of(Kind.CLIENT, KEY_ID, SECRET),
    "burst": 20,
    "capabilities": {"gpu": True},
    "checkpoint": {"at": 3},
    "concurrency": 4,
    "counters": {"pages": 3},
    "database": "ok",
    "deliveryId": JOB,
    "derived": "Completed",
    "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "enabled": True,
    "errorCode": "E_SMTP",
    "event": "job.completed",
    "events": ["job.completed", "job.failed"],
    "freeBytes": 80_000_000_000,
    "from": "running",
    "heartbeatSeconds": 10,
    "idempotencyKey": "order-4711",
    "instanceId": "process-1",
    "jobId": JOB,
    "jobType": "send-email",
    "jobTypes": ["send-email"],
    "keyId": KEY_ID,
    "kind": "remote",
    "leaseToken": TOKEN,
    "lifecycle": "default",
    "limit": 1,
    "limits": {"gpu": 1},
    "liveness": "busy",
    "maxAttempts": 5,
    "message": "mailbox full",
    "metadata": {"host": "render-3"},
    "name": "encoder-1",
    "newJobId": JOB,
    "nextCursor": None,
    "offlineSeconds": 90,
    "outcome": "failed",
    "payload": {"to": "a@example.com", "subject": "Hi"},
    "pendingJobs": 12,
    "percent": 50,
    "priority": 0,
    "progressPercent": 50,
    "queue": "mail",
    "queues": ["mail"],
    "rate": 10,
    "reason": "E_SMTP",
    "redriveOf": JOB,
    "requestId": "2f9c4c1be0a7-1",
    "result": {"sent": "a@example.com"},
    "scopes": ["jobs:create", "jobs:read"],
    "seq": 3,
    "state": "succeeded",
    "status": "COMPLETED",
    "step": "render",
    "currentStep": "render",
    "storedState": "succeeded",
    "tags": ["newsletter"],
    "tenant": "default",
    "to": "succeeded",
    "totalBytes": 250_000_000_000,
    "trace": {},
    "url": "https://example.com/hooks",
    "verb": "complete",
    "waitSeconds": 20,
    "webhookId": WORKER,
    "weight": 3,
    "workerId": WORKER,
    "workerType": "remote",
}
# Exceptions for these types.
ELSEWHERE: dict[str, dict[str, Any]] = {
    "Alive": {"status": "ok"},
    "AuditLine": {"action": "queue.pause", "subject": "mail", "detail": None},
    "BulkCancelBody": {"state": "queued", "reason": "not needed any more"},
    "BulkRedriveBody": {"state": "dead"},
    "BulkJob": {"outcome": "redriven"},
    "ClauseView": {"name": "queue", "says": "queue 'mail' is paused"},
    "TryView": {"status": 200},
    "Health": {"status": "ok"},
    "HeartbeatBody": {"status": "busy"},
    "JobAccepted": {"status": "PENDING"},
    "KeyIntent": {"kind": "client", "name": "the shop"},
    "KeyView": {"kind": "client", "status": "live", "name": "the shop"},
    "AdminLimit": {"name": "tenant:acme", "setBy": "admin secret", "declared": None},
    "LifecycleView": {"name": "default", "words": {"queued": "queued"}},
    "DeliveryView": {"state": "delivered", "message": {}},
    "PartView": {"name": "720p", "status": "completed"},
    "SettingView": {"name": "lease_seconds", "value": 30, "origin": "default", "variable": "HOLDFAST_LEASE_SECONDS"},
    "WebhookSubscription": {"name": "the shop"},
    "WebhookView": {"name": "the shop"},
    "WorkerRegistered": {"apiKey": text_of(Kind.WORKER, KEY_ID, SECRET)},
    "WorkerView": {"status": "busy"},
}
# Fields that would contradict the rest of an example.
LEFT_OUT: dict[str, set[str]] = {
    "AdminJob": {"error"},
    "WebhookData": {"error"},
    "JobView": {"error"},
    "BulkCancelBody": {"status", "cursor"},
    "BulkRedriveBody": {"status", "cursor"},
    "KeyIntent": {"workerId", "queues"},
    "KeyView": {"workerId", "queues", "revokedAt"},
    "ReportResult": {"code", "detail"},
}


class OpenApiExamples:
    def __init__(self, components: dict[str, Any]) -> None:
        self._components = components

    def of(self, schema: dict[str, Any], name: str = "") -> Any:
        if "$ref" in schema:
            found = schema["$ref"].rpartition("/")[2]
            return self._object(self._components[found], found)
        if name in NAMED and _fits(NAMED[name], schema):
            return NAMED[name]
        if "anyOf" in schema:
            return self.of(schema["anyOf"][0], name)
        if "default" in schema:
            return schema["default"]
        return self._plain(schema, name)

    def _object(self, schema: dict[str, Any], title: str) -> Any:
        """Of request bodies, only required fields and fields with an example."""
        if "enum" in schema:
            return schema["enum"][0]
        own, sent = ELSEWHERE.get(title, {}), "additionalProperties" in schema
        shown = schema["properties"].keys() - LEFT_OUT.get(title, set())
        if sent:
            shown &= {*schema.get("required", ()), *NAMED, *own}
        return {
            name: own[name] if name in own else self.of(inner, name)
            for name, inner in schema["properties"].items()
            if name in shown
        }

    def _plain(self, schema: dict[str, Any], name: str) -> Any:
        match schema:
            case {"enum": [first, *_]}:
                return first
            case {"type": "array", "items": dict(items)}:
                return [self.of(items, name.removesuffix("s"))]
            case {"type": "object", "additionalProperties": dict(inner)}:
                return {"queued" if name == "jobs" else JOB: self.of(inner, name)}
            case {"type": "array"}:
                return []
            case {"type": "object"}:
                return {}
            case {"type": "string"}:
                return TIME if schema.get("format") == "date-time" else JOB if name in ("lost", "cancel") else "..."
            case {"type": "integer" | "number"}:
                return schema.get("minimum", 1)
            case {"type": "boolean"}:
                return False
        return None


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the example fits the schema: a `limit` may be a number in one type and an object in another."""
    if "anyOf" in schema:
        return any(_fits(value, each) for each in schema["anyOf"])
    if "$ref" in schema or not isinstance(value, _KINDS.get(schema.get("type", ""), object)):
        return False
    return not isinstance(value, list) or all(_fits(item, schema.get("items", {})) for item in value)


_KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "object": dict,
    "array": list,
    "boolean": bool,
    "null": type(None),
}
