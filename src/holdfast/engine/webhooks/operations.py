"""`engine.webhooks`: subscriptions, deliveries, alerts and failure counts."""

from __future__ import annotations

from holdfast.engine.component import Component, reading, writing
from holdfast.engine.reads import missing_extensions as _missing
from holdfast.engine.webhooks import deliveries as _deliveries
from holdfast.engine.webhooks import failure_counts as _failure_counts
from holdfast.engine.webhooks import fan_out as _fan_out
from holdfast.engine.webhooks import webhooks as _webhooks
from holdfast.engine.webhooks.alerts import AlertRules
from holdfast.engine.webhooks.failure_counts import FailureCounts


class Webhooks(Component):
    """Webhooks in the database; `holdfast.webhooks` sends the due deliveries."""

    subscribe = writing(_webhooks.subscribe)
    change = writing(_webhooks.change)
    rotate = writing(_webhooks.rotate)
    delete = writing(_webhooks.drop)
    all = reading(_webhooks.every)
    get = reading(_webhooks.get)

    async def fan_out(self, watch: AlertRules | None = None) -> _fan_out.FannedOut:
        """Turn one page of the event log into deliveries. Reads first, because usually there is nothing new."""
        watching = watch or AlertRules()
        listening, news = await self.store.read(lambda tx: _fan_out.news(tx, watching))
        if not news:
            return _fan_out.FannedOut(listening)
        if not listening:
            return await self.store.write(_fan_out.skip)
        return await self.store.write(lambda tx: _fan_out.fan_out(tx, self.ctx, watching))

    async def alert_of_extensions(self, watch: AlertRules) -> bool:
        """Alert operators if jobs wait for an extension that no live process has."""
        missing = await self.store.read(_missing.missing)
        if not missing:
            return False
        return await self.store.write(lambda tx: _fan_out.alert_of_extensions(tx, self.ctx, watch, missing))

    async def count_failures(self) -> FailureCounts:
        """The counts up to the end of the log. Reads first, because usually there is nothing new."""
        if await self.store.read(_failure_counts.has_news):
            while await self.store.write(_failure_counts.count):
                continue
        return await self.store.read(_failure_counts.counts)

    with_work = reading(_deliveries.waiting)
    claim_deliveries = writing(_deliveries.claim)
    settle_delivery = writing(_deliveries.settle)
    make_test_delivery = writing(_deliveries.make_test)
    delivery = reading(_deliveries.find)
    deliveries = reading(_deliveries.page)
    replay_delivery = writing(_deliveries.replay)
    prune_deliveries = writing(_deliveries.prune)
