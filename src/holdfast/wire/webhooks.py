"""Request and response bodies of webhooks: subscriptions, deliveries and the messages sent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from holdfast.wire.base import Body, ResponseBody, Time


class WebhookSubscription(Body):
    """A webhook to create. Defaults: every event that ends a job, all job types, all queues."""

    url: str
    name: str | None = None
    tenant: str = "default"
    events: list[str] | UnsetType = UNSET
    job_types: list[str] | None = None
    queues: list[str] | None = None


class WebhookChange(Body):
    """Absent fields are not changed. `dropOldSecrets`: only the newest secret signs from now on."""

    url: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    events: list[str] | UnsetType = UNSET
    job_types: list[str] | UnsetType | None = UNSET
    queues: list[str] | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    drop_old_secrets: bool = False


class WebhookView(ResponseBody):
    """`secrets`: number of signing secrets; more than one during a rotation."""

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


class WebhooksResponse(ResponseBody):
    webhooks: list[WebhookView]


class WebhookSigned(ResponseBody):
    """`secret` is returned only here: store it now."""

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
    """A message and its most recent attempts. `deliveryId` is sent in the header `webhook-id`."""

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


class DeliveriesResponse(ResponseBody):
    deliveries: list[DeliveryView]
    next_cursor: str | None


class WebhookData(ResponseBody):
    """The job in a message. `state` is a state name of its lifecycle, `seq` the number of the event in its history."""

    job_id: str
    job_type: str
    queue: str
    status: str
    state: str
    seq: int
    subject: str | None = None
    error: str | None = None


class WebhookMessage(ResponseBody):
    """The body of a webhook request, signed according to Standard Webhooks."""

    type: str
    timestamp: Time
    data: WebhookData
