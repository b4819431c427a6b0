"""An example for everything that goes over the wire, made from its schema and from what its fields are called."""

from __future__ import annotations

from typing import Any

JOB = "01a1de61-081d-7ef1-9afc-d9ab2f5509bd"
WORKER = "2243f656-181b-435c-9f97-f600015c57ba"
TOKEN = "b7a0c9de-5c5b-4f0e-9f63-0d5f0a1c2e3d"  # noqa: S105  (nobody's)
TIME = "2026-11-15T08:44:23Z"

# What a field's name says about its value; an unknown name gets what its schema allows.
NAMED: dict[str, Any] = {
    "jobId": JOB,
    "workerId": WORKER,
    "leaseToken": TOKEN,
    "jobType": "send-email",
    "jobTypes": ["send-email"],
    "queue": "mail",
    "queues": ["mail"],
    "tenant": "default",
    "lifecycle": "default",
    "payload": {"to": "a@example.com", "subject": "Hi"},
    "result": {"sent": "a@example.com"},
    "idempotencyKey": "order-4711",
    "tags": ["newsletter"],
    "trace": {},
    "currentStep": "render",
    "step": "render",
    "progressPercent": 50,
    "percent": 50,
    "counters": {"pages": 3},
    "checkpoint": {"at": 3},
    "errorCode": "E_SMTP",
    "message": "mailbox full",
    "verb": "complete",
    "title": "Not Found",
    "type": "/docs#job_not_found",
    "detail": "there is no such job",
    "requestId": "2f9c4c1be0a7-1",
    "instanceId": "process-1",
    "apiKey": "hfw_...",
    "key": "hf_...",
    "name": "encoder-1",
    "workerType": "remote",
    "kind": "remote",
    "capabilities": {"gpu": True},
    "metadata": {"host": "render-3"},
    "url": "https://example.com/hooks",
    "reason": "E_SMTP",
    "nextCursor": None,
    "cursor": None,
    "tenants": None,
    "serverTime": TIME,
    "maxAttempts": 5,
    "priority": 0,
    "limit": 1,
    "attempt": 1,
    "epoch": 1,
    "seq": 3,
}
# The same name means something else here.
STATUS = {
    "HeartbeatBody": "busy",
    "PartReport": "completed",
    "PartView": "completed",
    "Alive": "ok",
    "Health": "ok",
    "JobAccepted": "PENDING",
    "Problem": 404,
}
LEFT_OUT = {"JobIntent": {"runAt", "delaySeconds"}, "JobView": {"error"}, "Report": {"code", "detail"}}


class Samples:
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
        if "enum" in schema:
            return schema["enum"][0]
        shown = {name: inner for name, inner in schema["properties"].items() if name not in LEFT_OUT.get(title, ())}
        return {
            name: STATUS.get(title, "COMPLETED") if name == "status" else self.of(inner, name)
            for name, inner in shown.items()
        }

    def _plain(self, schema: dict[str, Any], name: str) -> Any:
        match schema:
            case {"enum": [first, *_]}:
                return first
            case {"type": "array", "items": dict(items)}:
                return [self.of(items, name.removesuffix("s"))]
            case {"type": "object", "additionalProperties": dict(inner)}:
                return {JOB: self.of(inner, name)}
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
    """Is this what the name means here? A `limit` may be a number in one place and an object in another."""
    if "anyOf" in schema:
        return any(_fits(value, each) for each in schema["anyOf"])
    kinds = {"string": str, "integer": int, "number": int | float, "object": dict, "array": list, "null": type(None)}
    return "type" not in schema or isinstance(value, kinds.get(schema["type"], object))
