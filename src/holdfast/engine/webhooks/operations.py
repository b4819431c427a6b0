"""`engine.webhooks`: subscriptions, deliveries, alerts and failure counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engine.admin import audit as _audit
from holdfast.engine.admin.audited import Audited
from holdfast.engine.reads import missing_extensions as _missing
from holdfast.engine.webhooks import deliveries as _deliveries
from holdfast.engine.webhooks import failure_counts as _failure_counts
from holdfast.engine.webhooks import fan_out as _fan_out
from holdfast.engine.webhooks import webhooks as _webhooks
from holdfast.engine.webhooks.alerts import AlertRules
from holdfast.engine.webhooks.failure_counts import FailureCounts
from holdfast.model.webhook import Delivery, Webhook


class Webhooks(Audited):
    """Webhooks in the database; `holdfast.webhooks` sends what is due."""

    async def subscribe(self, new: _webhooks.NewWebhook, *, by: str = "api") -> _webhooks.Signed:
        return await self._audited(
            lambda tx: _webhooks.subscribe(tx, self.ctx, new),
            lambda made: _audit.AuditedAction(by, "webhook.create", made.webhook.id, {"url": made.webhook.url}),
        )

    async def change(self, webhook: str, *, by: str = "api", **to: Any) -> Webhook:
        return await self._audited(
            lambda tx: _webhooks.change(tx, webhook, **to),
            lambda _: _audit.AuditedAction(by, "webhook.change", webhook, to),
        )

    async def rotate(self, webhook: str, *, by: str = "api", **options: Any) -> _webhooks.Signed:
        return await self._audited(
            lambda tx: _webhooks.rotate(tx, self.ctx, webhook, **options),
            lambda _: _audit.AuditedAction(by, "webhook.rotate", webhook),
        )

    async def delete(self, webhook: str, *, by: str = "api") -> None:
        await self._audited(
            lambda tx: _webhooks.drop(tx, webhook), lambda _: _audit.AuditedAction(by, "webhook.delete", webhook)
        )

    async def all(self) -> list[Webhook]:
        return await self.store.read(_webhooks.every)

    async def get(self, webhook: str) -> Webhook:
        return await self.store.read(lambda tx: _webhooks.get(tx, webhook))

    async def fan_out(self, watch: AlertRules | None = None) -> _fan_out.FannedOut:
        """A page of the event log as messages. A look first: most of the time there is nothing new."""
        watching = watch or AlertRules()
        listening, news = await self.store.read(lambda tx: _fan_out.news(tx, watching))
        if not news:
            return _fan_out.FannedOut(listening)
        if not listening:
            return await self.store.write(_fan_out.skip)
        return await self.store.write(lambda tx: _fan_out.fan_out(tx, self.ctx, watching))

    async def alert_of_extensions(self, watch: AlertRules) -> bool:
        """Jobs wait for an extension that no live process has: somebody should hear of it."""
        missing = await self.store.read(_missing.missing)
        if not missing:
            return False
        return await self.store.write(lambda tx: _fan_out.alert_of_extensions(tx, self.ctx, watch, missing))

    async def count_failures(self) -> FailureCounts:
        """The counts, up to the end of the log. A look first: most of the time there is nothing new."""
        if await self.store.read(_failure_counts.has_news):
            while await self.store.write(_failure_counts.count):
                continue
        return await self.store.read(_failure_counts.counts)

    async def with_work(self, *, busy: Sequence[str] = (), alerts: bool = False) -> list[str]:
        return await self.store.read(lambda tx: _deliveries.waiting(tx, busy=busy, alerts=alerts))

    async def claim_deliveries(self, rooms: dict[str, int]) -> list[_deliveries.DueDelivery]:
        return await self.store.write(lambda tx: _deliveries.claim(tx, rooms))

    async def settle_delivery(
        self, delivery: Delivery, outcome: _deliveries.DeliveryOutcome
    ) -> _deliveries.DeliveryEffect:
        return await self.store.write(lambda tx: _deliveries.settle(tx, delivery, outcome))

    async def make_test_delivery(self, webhook: str) -> _deliveries.DueDelivery:
        return await self.store.write(lambda tx: _deliveries.make_test(tx, self.ctx, webhook))

    async def delivery(self, delivery: str) -> Delivery:
        return await self.store.read(lambda tx: _deliveries.find(tx, delivery))

    async def deliveries(
        self, webhook: str, *, state: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> _deliveries.DeliveryPage:
        return await self.store.read(lambda tx: _deliveries.page(tx, webhook, state=state, cursor=cursor, limit=limit))

    async def replay_delivery(self, delivery: str, *, by: str = "api") -> Delivery:
        return await self._audited(
            lambda tx: _deliveries.replay(tx, delivery), lambda _: _audit.AuditedAction(by, "delivery.replay", delivery)
        )

    async def prune_deliveries(self) -> int:
        return await self.store.write(lambda tx: _deliveries.prune(tx, self.ctx))
