"""Webhooks: subscriptions, deliveries, and the messages themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from holdfast.wire.base import Body, ResponseBody, Time


class WebhookSubscription(Body):
    """Who wants to be told. Without `events`, of every end; without `jobTypes` or `queues`, of all of them."""

    url: str
    name: str | None = None
    tenant: str = "default"
    events: list[str] | UnsetType = UNSET
    job_types: list[str] | None = None
    queues: list[str] | None = None


class WebhookChange(Body):
    """What is not named stays as it is. `dropOldSecrets`: from now on only the newest secret signs."""

    url: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    events: list[str] | UnsetType = UNSET
    job_types: list[str] | UnsetType | None = UNSET
    queues: list[str] | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    drop_old_secrets: bool = False


class WebhookView(ResponseBody):
    """`secrets`: how many sign now; more than one while a new one takes over."""

    webhook_id: str
    tenant: str
    url: str
    events: list[str]
    enabled: bool
    created_at: Time
    secrets: int
    name: str | None = None
    job_types: list[str] | None = None
    queues: list[str] | None = None
    disabled_reason: str | None = None
    failing_since: Time | None = None


class WebhooksAnswer(ResponseBody):
    webhooks: list[WebhookView]


class WebhookSigned(ResponseBody):
    """`secret` is shown here and nowhere else: keep it now."""

    webhook: WebhookView
    secret: str


class DeliveriesQuery(Body):
    state: Literal["pending", "delivered", "failed"] | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class TryView(ResponseBody):
    at: Time
    ms: int
    status: int | None = None
    error: str | None = None
    excerpt: str | None = None


class DeliveryView(ResponseBody):
    """A message, and the last times that it was sent. Its id is the header `webhook-id`."""

    delivery_id: str
    webhook_id: str
    event: str
    state: str
    tries: int
    created_at: Time
    message: Any
    log: list[TryView]
    next_try_at: Time | None = None
    finished_at: Time | None = None


class DeliveriesAnswer(ResponseBody):
    deliveries: list[DeliveryView]
    next_cursor: str | None


class WebhookData(ResponseBody):
    """What a message says of a job. `state` is its lifecycle's own word, `seq` the event's number in its history."""

    job_id: str
    job_type: str
    queue: str
    status: str
    state: str
    seq: int
    subject: str | None = None
    error: str | None = None


class WebhookMessage(ResponseBody):
    """What is sent to a webhook, signed as Standard Webhooks says."""

    type: str
    timestamp: Time
    data: WebhookData
