"""Webhooks: subscriptions to events. A signing secret is shown once, when it is created."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from holdfast.engine.admin.audit import audited
from holdfast.engine.context import EngineContext
from holdfast.engine.reads.read import feed_end
from holdfast.errors import Conflict, NotFound
from holdfast.ids import is_uuid
from holdfast.model.names import quoted
from holdfast.model.numbers import check_number
from holdfast.model.webhook import SECRET_BITS, Secret, Webhook, WebhookFilter, secret_of
from holdfast.store import Tx, q

READER = "webhooks"
WEBHOOKS_MAX = 1000
OVERLAP_SECONDS = 86_400.0  # after a rotation, both secrets sign for this time


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    name: str | None = None
    tenant: str = "default"
    wanted: WebhookFilter = WebhookFilter()


class Signed(msgspec.Struct, frozen=True):
    """A webhook with its new secret, which is shown only once."""

    webhook: Webhook
    secret: str

    def __repr__(self) -> str:
        return f"Signed({self.webhook!r}, ...)"


async def subscribe(tx: Tx, ctx: EngineContext, new: NewWebhook, *, by: str = "api") -> Signed:
    secret = secret_of(ctx.ids.bits(SECRET_BITS))
    [webhook_id] = ctx.ids.job_ids(ctx.clock.now(), 1)
    hook = Webhook(
        *(webhook_id, new.tenant, new.name, new.url, [Secret(secret)], new.wanted),
        *(True, None, None, ctx.clock.now()),
    )
    hook.check()
    if len(await every(tx)) >= WEBHOOKS_MAX:
        raise Conflict(f"there are already {WEBHOOKS_MAX} webhooks, the maximum; delete some", code="too_many_webhooks")
    await _start_reading(tx)
    values = {name: getattr(hook, name) for name in ("id", "tenant", "name", "url")}
    await tx.one(q.put_webhook, **values, **_stored(hook))
    created = await get(tx, hook.id)
    await audited(tx, by, "webhook.create", created.id, {"url": created.url})
    return Signed(created, secret)


async def _start_reading(tx: Tx) -> None:
    """Create the reader, so that no event is missed, even if no process sends webhooks yet."""
    if await tx.one(q.reader, name=READER) is None:
        end = await feed_end(tx)
        await tx.one(q.put_reader, name=READER, **end._asdict())


async def every(tx: Tx) -> list[Webhook]:
    return [Webhook.from_row(row) for row in await tx.all(q.webhooks, ids=None)]


async def get(tx: Tx, webhook: str) -> Webhook:
    rows = await tx.all(q.webhooks, ids=[webhook]) if is_uuid(webhook) else []
    if not rows:
        raise NotFound(f"no webhook {quoted(webhook)}", code="webhook_not_found")
    return Webhook.from_row(rows[0])


async def change(tx: Tx, webhook: str, /, *, by: str = "api", **to: Any) -> Webhook:
    """`to` are fields of the webhook; `wanted`: fields of its filter; `drop_old_secrets`."""
    hook, given = await _locked(tx, webhook), dict(to)
    to["wanted"] = msgspec.structs.replace(hook.wanted, **to.get("wanted") or {})
    if to.get("enabled") is not None:
        to["disabled_reason"] = None if to["enabled"] else "switched off"
    if to.pop("drop_old_secrets", False):
        to["secrets"] = hook.secrets[:1]
    changed = await _put(tx, msgspec.structs.replace(hook, **to))
    await audited(tx, by, "webhook.change", webhook, given)
    return changed


async def rotate(
    tx: Tx, ctx: EngineContext, webhook: str, *, overlap_seconds: float = OVERLAP_SECONDS, by: str = "api"
) -> Signed:
    """Rotate the signing secret. During the overlap the old secret signs, too, until the receiver has the new one."""
    check_number(overlap_seconds, "overlap_seconds")
    hook, now = await _locked(tx, webhook), ctx.clock.now()
    new = Secret(secret_of(ctx.ids.bits(SECRET_BITS)))
    end = now + timedelta(seconds=overlap_seconds)
    old = [Secret(secret.text, min(secret.until or end, end)) for secret in hook.secrets]
    kept = [secret for secret in old if secret.until is not None and secret.until > now]
    rotated = await _put(tx, msgspec.structs.replace(hook, secrets=[new, *kept]))
    await audited(tx, by, "webhook.rotate", webhook)
    return Signed(rotated, new.text)


async def drop(tx: Tx, webhook: str, *, by: str = "api") -> None:
    await get(tx, webhook)
    await tx.one(q.drop_webhook, id=webhook)
    await audited(tx, by, "webhook.delete", webhook)


async def _locked(tx: Tx, webhook: str) -> Webhook:
    if is_uuid(webhook):
        await tx.one(q.hold_webhook, id=webhook)
    return await get(tx, webhook)


async def _put(tx: Tx, hook: Webhook) -> Webhook:
    hook.check()
    values = {name: getattr(hook, name) for name in ("id", "name", "url", "enabled", "disabled_reason")}
    await tx.one(q.change_webhook, **values, **_stored(hook))
    return await get(tx, hook.id)


def _stored(hook: Webhook) -> dict[str, str]:
    return {name: msgspec.json.encode(getattr(hook, name)).decode() for name in ("secrets", "wanted")}
