"""Admin routes for webhooks and their deliveries: create, update, rotate, test, replay."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import wire
from holdfast.engine.webhooks.webhooks import NewWebhook, Signed
from holdfast.model.webhook import Delivery, Webhook, WebhookFilter
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState

_WANTED = ("events", "job_types", "queues")


async def subscribe(server: ServerState, request: HttpRequest) -> Reply:
    body: wire.WebhookSubscription = request.body
    server.deliverer.egress.check(body.url)
    wanted = WebhookFilter(**_given(body, _WANTED))
    new = NewWebhook(url=body.url, name=body.name, tenant=body.tenant, wanted=wanted)
    made = await server.engine.webhooks.subscribe(new, by=request.caller.name)
    server.deliverer.wake()
    return Reply(201, _signed(server, made), ((b"location", f"/api/admin/webhooks/{made.webhook.id}".encode()),))


async def every(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(200, wire.WebhooksResponse([_view(server, hook) for hook in await server.engine.webhooks.all()]))


async def get(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(200, _view(server, await server.engine.webhooks.get(request.path["webhook_id"])))


async def change(server: ServerState, request: HttpRequest) -> Reply:
    body: wire.WebhookChange = request.body
    to = _given(body, ("name", "url", "enabled"))
    if "url" in to:
        server.deliverer.egress.check(to["url"])
    if wanted := _given(body, _WANTED):
        to["wanted"] = wanted
    if body.drop_old_secrets:
        to["drop_old_secrets"] = True
    hook = await server.engine.webhooks.change(request.path["webhook_id"], by=request.caller.name, **to)
    server.deliverer.wake()
    return Reply(200, _view(server, hook))


async def drop(server: ServerState, request: HttpRequest) -> Reply:
    await server.engine.webhooks.delete(request.path["webhook_id"], by=request.caller.name)
    return Reply(204)


async def rotate(server: ServerState, request: HttpRequest) -> Reply:
    made = await server.engine.webhooks.rotate(
        request.path["webhook_id"], overlap_seconds=request.query.overlap_seconds, by=request.caller.name
    )
    return Reply(200, _signed(server, made))


async def test(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(200, _delivery(await server.deliverer.test(request.path["webhook_id"])))


async def deliveries(server: ServerState, request: HttpRequest) -> Reply:
    query: wire.DeliveriesQuery = request.query
    page = await server.engine.webhooks.deliveries(
        request.path["webhook_id"], state=query.state, cursor=query.cursor, limit=query.limit
    )
    return Reply(200, wire.DeliveriesResponse([_delivery(each) for each in page.deliveries], page.next))


async def replay(server: ServerState, request: HttpRequest) -> Reply:
    again = await server.engine.webhooks.replay_delivery(request.path["delivery_id"], by=request.caller.name)
    server.deliverer.wake()
    return Reply(202, _delivery(again))


def _given(body: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(body, name)) is not msgspec.UNSET}


def _signed(server: ServerState, made: Signed) -> wire.WebhookSigned:
    return wire.WebhookSigned(_view(server, made.webhook), made.secret)


def _view(server: ServerState, hook: Webhook) -> wire.WebhookView:
    return wire.WebhookView.of(
        hook,
        webhook_id=hook.id,
        events=list(hook.wanted.events),
        secrets=len(hook.signing(server.clock.now())),
        job_types=hook.wanted.job_types,
        queues=hook.wanted.queues,
    )


def _delivery(delivery: Delivery) -> wire.DeliveryView:
    return wire.DeliveryView.of(
        delivery,
        delivery_id=delivery.id,
        message=msgspec.Raw(delivery.body.encode()),
        log=[wire.TryView.of(each) for each in delivery.log],
        next_try_at=delivery.next_at if delivery.state == "pending" else None,
    )
