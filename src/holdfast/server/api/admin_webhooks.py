"""Webhooks for operators: who is told of what, whether it arrived, and once more if it did not."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import wire
from holdfast.engine.webhooks.webhooks import NewWebhook, Signed
from holdfast.model.webhook import Delivery, Wanted, Webhook
from holdfast.server.http.route import Asked, Reply
from holdfast.server.state import Server

_WANTED = ("events", "job_types", "queues")


async def subscribe(server: Server, asked: Asked) -> Reply:
    body: wire.WebhookSubscription = asked.body
    server.courier.egress.check(body.url)
    wanted = Wanted(**_given(body, _WANTED))
    new = NewWebhook(url=body.url, name=body.name, tenant=body.tenant, wanted=wanted)
    made = await server.engine.webhooks.subscribe(new, by=asked.caller.name)
    server.courier.look()
    return Reply(201, _signed(server, made), ((b"location", f"/api/admin/webhooks/{made.webhook.id}".encode()),))


async def every(server: Server, asked: Asked) -> Reply:
    return Reply(200, wire.WebhooksAnswer([_view(server, hook) for hook in await server.engine.webhooks.all()]))


async def get(server: Server, asked: Asked) -> Reply:
    return Reply(200, _view(server, await server.engine.webhooks.get(asked.path["webhook_id"])))


async def change(server: Server, asked: Asked) -> Reply:
    body: wire.WebhookChange = asked.body
    to = _given(body, ("name", "url", "enabled"))
    if "url" in to:
        server.courier.egress.check(to["url"])
    if wanted := _given(body, _WANTED):
        to["wanted"] = wanted
    if body.drop_old_secrets:
        to["drop_old_secrets"] = True
    hook = await server.engine.webhooks.change(asked.path["webhook_id"], by=asked.caller.name, **to)
    server.courier.look()
    return Reply(200, _view(server, hook))


async def drop(server: Server, asked: Asked) -> Reply:
    await server.engine.webhooks.delete(asked.path["webhook_id"], by=asked.caller.name)
    return Reply(204)


async def rotate(server: Server, asked: Asked) -> Reply:
    made = await server.engine.webhooks.rotate(
        asked.path["webhook_id"], overlap_seconds=asked.query.overlap_seconds, by=asked.caller.name
    )
    return Reply(200, _signed(server, made))


async def test(server: Server, asked: Asked) -> Reply:
    return Reply(200, _delivery(await server.courier.test(asked.path["webhook_id"])))


async def deliveries(server: Server, asked: Asked) -> Reply:
    query: wire.DeliveriesQuery = asked.query
    page = await server.engine.webhooks.deliveries(
        asked.path["webhook_id"], state=query.state, cursor=query.cursor, limit=query.limit
    )
    return Reply(200, wire.DeliveriesAnswer([_delivery(each) for each in page.deliveries], page.next))


async def replay(server: Server, asked: Asked) -> Reply:
    again = await server.engine.webhooks.replay_delivery(asked.path["delivery_id"], by=asked.caller.name)
    server.courier.look()
    return Reply(202, _delivery(again))


def _given(body: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(body, name)) is not msgspec.UNSET}


def _signed(server: Server, made: Signed) -> wire.WebhookSigned:
    return wire.WebhookSigned(_view(server, made.webhook), made.secret)


def _view(server: Server, hook: Webhook) -> wire.WebhookView:
    return wire.WebhookView(
        webhook_id=hook.id,
        tenant=hook.tenant,
        url=hook.url,
        events=list(hook.wanted.events),
        enabled=hook.enabled,
        created_at=hook.created_at,
        secrets=len(hook.signing(server.clock.now())),
        name=hook.name,
        job_types=hook.wanted.job_types,
        queues=hook.wanted.queues,
        disabled_reason=hook.disabled_reason,
        failing_since=hook.failing_since,
    )


def _delivery(delivery: Delivery) -> wire.DeliveryView:
    return wire.DeliveryView(
        delivery_id=delivery.id,
        webhook_id=delivery.webhook_id,
        event=delivery.event,
        state=delivery.state,
        tries=delivery.tries,
        created_at=delivery.created_at,
        message=msgspec.Raw(delivery.body.encode()),
        log=[wire.TryView(each.at, each.ms, each.status, each.error, each.excerpt) for each in delivery.log],
        next_try_at=delivery.next_at if delivery.state == "pending" else None,
        finished_at=delivery.finished_at,
    )
