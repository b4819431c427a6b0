"""Webhooks, their event filters, and deliveries."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import UnknownName
from holdfast.model.history import Event
from holdfast.model.json import decode
from holdfast.model.names import check_name, check_names
from holdfast.signatures import SECRET_PREFIX

SECRET_BITS = 256
TEST = "webhook.test"

# Event names by the new state, else by the verb.
_BY_STATE = {
    "retrying": "job.retrying",
    "succeeded": "job.completed",
    "dead": "job.failed",
    "canceled": "job.canceled",
    "rejected": "job.rejected",
}
_BY_VERB = {"create": "job.created", "claim": "job.started", "progress": "job.progress"}
ENDINGS = ("job.completed", "job.failed", "job.canceled", "job.rejected")
EVENTS = ("job.created", "job.started", "job.progress", "job.retrying", *ENDINGS)


def event_name(event: Event) -> str | None:
    """None: not sent to webhooks."""
    return _BY_STATE.get(event.to_state or "") or _BY_VERB.get(event.verb)


class WebhookFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages a webhook gets; None means all."""

    events: tuple[str, ...] = ENDINGS
    job_types: list[str] | None = None
    queues: list[str] | None = None

    def check(self) -> None:
        for name in check_names(self.events, "events"):
            if name not in EVENTS:
                raise UnknownName.of("event", name, list(EVENTS))
        if self.job_types is not None:
            check_names(self.job_types, "job_types")
        if self.queues is not None:
            check_names(self.queues, "queues")

    def fits(self, name: str, job_type: str, queue: str) -> bool:
        return (
            name in self.events
            and (self.job_types is None or job_type in self.job_types)
            and (self.queues is None or queue in self.queues)
        )


class Secret(msgspec.Struct, frozen=True, omit_defaults=True):
    """`until`: it was rotated, and signs together with the new one until then."""

    text: str
    until: datetime | None = None

    def __repr__(self) -> str:
        return "Secret(...)"


def secret_of(bits: int) -> str:
    return SECRET_PREFIX + b64encode(bits.to_bytes(SECRET_BITS // 8, "big")).decode()


class Webhook(msgspec.Struct, frozen=True):
    id: str
    tenant: str
    name: str | None
    url: str
    secrets: list[Secret]
    wanted: WebhookFilter
    enabled: bool
    disabled_reason: str | None
    failing_since: datetime | None
    created_at: datetime

    @classmethod
    def from_row(cls, row: Any) -> Webhook:
        values = list(row)
        values[4] = decode(values[4], type=list[Secret])
        values[5] = decode(values[5], type=WebhookFilter)
        values[6] = bool(values[6])
        return cls(*values)

    def signing(self, now: datetime) -> list[str]:
        """The active secrets, newest first."""
        return [secret.text for secret in self.secrets if secret.until is None or secret.until > now]

    def check(self) -> None:
        check_name(self.tenant, "tenant")
        if self.name is not None:
            check_name(self.name, "name")
        self.wanted.check()


class DeliveryTry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of a delivery: the response, or the error."""

    at: datetime
    ms: int
    status: int | None = None
    error: str | None = None
    excerpt: str | None = None


class Delivery(msgspec.Struct, frozen=True):
    """One message for one webhook; its id is the same for each retry."""

    id: str
    webhook_id: str
    tenant: str
    job_id: str
    seq: int
    event: str
    body: str
    state: str
    tries: int
    log: list[DeliveryTry]
    created_at: datetime
    next_at: datetime
    finished_at: datetime | None

    @classmethod
    def from_row(cls, row: Any) -> Delivery:
        values = list(row)
        values[9] = decode(values[9], type=list[DeliveryTry])
        return cls(*values)
