"""Webhook deliveries: messages to send. A process claims one under a lease; if the lease expires, it is sent again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from holdfast.engine.admin.audit import audited
from holdfast.engine.context import EngineContext
from holdfast.engine.webhooks.alerts import MAILBOX
from holdfast.engine.webhooks.webhooks import every, get
from holdfast.errors import Conflict, Invalid, NotFound
from holdfast.ids import is_uuid
from holdfast.model.names import quoted
from holdfast.model.numbers import check_limit
from holdfast.model.webhook import TEST, Delivery, DeliveryTry, Webhook
from holdfast.store import Tx, q

LEASE_SECONDS = 90.0  # longer than the timeout of a try
LOG_MAX = 10  # tries that are stored
KEPT_SECONDS = 7 * 86_400.0
FAILING_SECONDS = 5 * 86_400.0  # a webhook that fails for longer is disabled
PAGE_MAX = 200
LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"

Kind = Literal["delivered", "failed", "pending"]


class DueDelivery(NamedTuple):
    """A claimed delivery; an alert has no webhook."""

    delivery: Delivery
    webhook: Webhook | None


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """The outcome of a try. `gone`: the receiver answered 410 Gone."""

    tried: DeliveryTry
    state: Kind
    delay_seconds: float = 0
    gone: bool = False


class DeliveryEffect(msgspec.Struct, frozen=True):
    """What the outcome of a try changed: the webhook works again, or why it was disabled."""

    recovered: bool = False
    disabled: str | None = None


class DeliveryPage(msgspec.Struct, frozen=True):
    deliveries: list[Delivery]
    next: str | None


async def waiting(tx: Tx, *, busy: Iterable[str] = (), alerts: bool = False) -> list[str]:
    """The webhooks with due deliveries, without the busy ones."""
    asked = [hook.id for hook in await every(tx) if hook.enabled] + (list(MAILBOX.values()) if alerts else [])
    free = [(hook,) for hook in asked if hook not in set(busy)]
    return [row["id"] for row in await tx.all(q.webhooks_with_work, asked=free)] if free else []


async def claim(tx: Tx, rooms: Mapping[str, int]) -> list[DueDelivery]:
    """Claim deliveries, for each webhook up to its number in `rooms`. Skips rows locked by other processes."""
    ids: list[str] = []
    for webhook, room in rooms.items():
        rows = await tx.all(q.claim_deliveries, webhooks=[webhook], lease_seconds=LEASE_SECONDS, limit=room)
        ids += [row["id"] for row in rows]
    return await _claimed(tx, ids)


async def _claimed(tx: Tx, ids: list[str]) -> list[DueDelivery]:
    found = [Delivery.from_row(row) for row in await tx.all(q.deliveries_by_id, ids=ids)] if ids else []
    hooks = {hook.id: hook for hook in await every(tx)} if found else {}
    mailboxes = set(MAILBOX.values())
    return [
        DueDelivery(delivery, hooks.get(delivery.webhook_id))
        for delivery in found
        if delivery.webhook_id in hooks or delivery.webhook_id in mailboxes
    ]


async def settle(tx: Tx, delivery: Delivery, outcome: DeliveryOutcome) -> DeliveryEffect:
    log = msgspec.json.encode([*delivery.log, outcome.tried][-LOG_MAX:]).decode()
    row = await tx.one(
        q.settle_delivery,
        id=delivery.id,
        tries=delivery.tries,
        state=outcome.state,
        log=log,
        delay_seconds=float(outcome.delay_seconds),
    )
    if row is None:  # the lease expired and it was claimed again, or it was replayed
        return DeliveryEffect()
    if outcome.state == "delivered":
        return DeliveryEffect(recovered=await tx.one(q.webhook_answers, id=delivery.webhook_id) is not None)
    await tx.one(q.webhook_fails, id=delivery.webhook_id)
    return DeliveryEffect(disabled=await _disable(tx, delivery, outcome))


async def _disable(tx: Tx, delivery: Delivery, outcome: DeliveryOutcome) -> str | None:
    """Disable the webhook: at once after 410 Gone, otherwise when a delivery failed for good and none succeeded for
    days. Returns the reason."""
    if not outcome.gone and outcome.state != "failed":
        return None
    days = f"nothing could be delivered for {FAILING_SECONDS / 86_400:g} days"
    reason = "the receiver answered 410 Gone" if outcome.gone else days
    row = await tx.one(
        q.disable_webhook, id=delivery.webhook_id, reason=reason, at_once=outcome.gone, seconds=FAILING_SECONDS
    )
    if row is None:
        return None
    await audited(tx, "system", "webhook.disable", delivery.webhook_id, {"reason": reason})
    return reason


async def make_test(tx: Tx, ctx: EngineContext, webhook: str) -> DueDelivery:
    """Create and claim a test message; the caller sends it."""
    hook = await get(tx, webhook)
    now = ctx.clock.now()
    [new] = ctx.ids.job_ids(now, 1)
    body = {"type": TEST, "timestamp": now, "data": {"webhookId": hook.id}}
    text = msgspec.json.encode(body).decode()
    await tx.all(q.put_deliveries, made=[(new, hook.id, hook.tenant, ctx.ids.token(), 0, TEST, text)])
    await tx.one(q.claim_delivery, id=new, lease_seconds=LEASE_SECONDS)
    [test] = await _claimed(tx, [new])
    return test


async def find(tx: Tx, delivery: str) -> Delivery:
    """A delivery of an existing webhook."""
    found = await _claimed(tx, [delivery]) if is_uuid(delivery) else []
    if not found or found[0].webhook is None:
        raise NotFound(f"no delivery {quoted(delivery)}", code="delivery_not_found")
    return found[0].delivery


async def replay(tx: Tx, delivery: str, *, by: str = "api") -> Delivery:
    """Send the same message again, under the same id and with all its tries."""
    found = await find(tx, delivery)
    if not (await get(tx, found.webhook_id)).enabled:
        raise Conflict(f"webhook {found.webhook_id} is disabled; enable it first", code="webhook_disabled")
    await tx.one(q.replay_delivery, id=delivery)
    found = await find(tx, delivery)
    await audited(tx, by, "delivery.replay", delivery)
    return found


async def page(
    tx: Tx, webhook: str, *, state: str | None = None, cursor: str | None = None, limit: int = 50
) -> DeliveryPage:
    """Newest first."""
    await get(tx, webhook)
    check_limit(limit, "deliveries", most=PAGE_MAX)
    if cursor is not None and not is_uuid(cursor):
        raise Invalid("invalid cursor; use the cursor of the previous page", code="invalid_cursor")
    states = None if state is None else [state]
    rows = await tx.all(q.page_deliveries, webhook=webhook, before=cursor or LAST, states=states, limit=limit + 1)
    found = [Delivery.from_row(row) for row in rows[:limit]]
    return DeliveryPage(found, found[-1].id if len(rows) > limit else None)


async def prune(tx: Tx, ctx: EngineContext) -> int:
    """Delete deliveries that ended a week ago, and those that no process has claimed for a week."""
    return len(await tx.all(q.prune_deliveries, seconds=KEPT_SECONDS, limit=ctx.limits.sweep_batch))
