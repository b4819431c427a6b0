"""Delivers webhooks and alerts, at least once. Every server runs a deliverer, and they share the work."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable

from holdfast.backoff import delay
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.webhooks.alerts import EXTENSION, AlertRules
from holdfast.engine.webhooks.deliveries import DeliveryOutcome, DueDelivery
from holdfast.engine.webhooks.failure_counts import FailureCounts
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.model.webhook import TEST, Delivery, DeliveryTry, Webhook
from holdfast.outage_log import LoopFailures, is_outage, outage
from holdfast.webhooks import signing
from holdfast.webhooks.alerts import AlertSettings, formatted
from holdfast.webhooks.sender import TOTAL_SECONDS, DeliveryResponse, WebhookSender

ACTIVE_SECONDS, IDLE_SECONDS = 0.25, 5.0
DEBOUNCE_SECONDS = 0.02  # several deliveries that end at about the same time cause one round
PRUNE_SECONDS = 600.0  # between two prunings of old deliveries
PRUNING_SECONDS = 2.0  # at a time, then due deliveries are sent
AT_ONCE, AT_ONCE_EACH = 32, 4  # concurrent requests: in total, and to one receiver
PAGES_MAX = 20  # of the event log in one round

TRIES_MAX = 13  # over about a day
FIRST_SECONDS, FACTOR, CAP_SECONDS, JITTER = 5.0, 3.0, 4 * 3600.0, 0.2
GONE = 410

EXTENSIONS_SECONDS = 15.0

DELIVER, ALERT = "deliver", "alert"
# Called with the kind of message, its duration in seconds, the HTTP status and the outcome.
OnSent = Callable[[str, float, int | None, str], None]

log = logging.getLogger(__name__)


class WebhookDeliverer:
    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, sender: WebhookSender, alerts: AlertSettings | None = None
    ) -> None:
        self._engine, self._clock, self._ids, self._sender = engine, clock, ids, sender
        self._alerts = alerts or AlertSettings()
        self._watch = AlertRules(self._alerts.kinds if self._alerts.url else frozenset(), self._alerts.cooldown_seconds)
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()
        self._wake = asyncio.Event()
        self._failures = LoopFailures("send webhooks", log)
        self._pruned = clock.monotonic()
        self._extensions_checked_at = -math.inf
        self.egress = sender.egress
        self._counted = -math.inf
        self.failures: FailureCounts | None = None  # of all processes, as last read
        self.on_sent: OnSent | None = None

    def wake(self) -> None:
        """Start a round soon: a hint that there may be new events."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Deliveries that are cancelled are sent again by another server."""
        try:
            while True:
                self._wake.clear()
                await self._clock.within(self._wake, await self._round())
                await self._clock.sleep(DEBOUNCE_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """After `run` has ended."""
        await self._sender.close()

    async def _round(self) -> float:
        """One round of all tasks; returns the seconds until the next."""
        try:
            listening = await self.fan_out()
            await self._check_extensions_if_due()
            await self.start_deliveries()
            await self.count_failures_if_due()
            await self.prune_if_due()
        except Exception as error:
            self._failures.failed(error)
            return IDLE_SECONDS
        self._failures.succeeded()
        return ACTIVE_SECONDS if listening else IDLE_SECONDS

    async def fan_out(self) -> bool:
        """Create deliveries for new events. Returns whether there are subscriptions."""
        listening = False
        for _ in range(PAGES_MAX):
            page = await self._engine.webhooks.fan_out(self._watch)
            listening = page.listening
            if not page.full:
                break
        return listening

    async def check_extensions(self) -> None:
        """Send an alert for each extension that jobs need and no live process has."""
        if EXTENSION in self._watch.kinds:
            await self._engine.webhooks.alert_of_extensions(self._watch)

    async def _check_extensions_if_due(self) -> None:
        now = self._clock.monotonic()
        if now - self._extensions_checked_at >= EXTENSIONS_SECONDS:
            self._extensions_checked_at = now
            await self.check_extensions()

    async def start_deliveries(self) -> int:
        """Claim and start as many deliveries as the limits allow; returns their number."""
        room = AT_ONCE - self._busy.total()
        if room <= 0:
            return 0
        full = [hook for hook, busy in self._busy.items() if busy >= AT_ONCE_EACH]
        waiting = await self._engine.webhooks.with_work(busy=full, alerts=bool(self._watch.kinds))
        errands = await self._engine.webhooks.claim_deliveries(self._shares(waiting, room)) if waiting else []
        for errand in errands:
            self._busy[errand.delivery.webhook_id] += 1
            task = asyncio.create_task(self._deliver_one(errand))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(errands)

    def _shares(self, waiting: list[str], room: int) -> dict[str, int]:
        """How many deliveries to claim for each webhook, in random order for fairness."""
        shares: dict[str, int] = {}
        for hook in sorted(waiting, key=lambda _: self._ids.jitter()):
            share = min(AT_ONCE_EACH - self._busy[hook], room - sum(shares.values()))
            if share > 0:
                shares[hook] = share
        return shares

    async def _deliver_one(self, errand: DueDelivery) -> None:
        try:
            await self.deliver(errand)
        except Exception as error:  # it is due again when its lease expires
            if is_outage(error):
                outage.failed(f"store the outcome of delivery {errand.delivery.id}", error, often=False)
            else:
                log.warning("delivery %s: its outcome could not be stored: %s", errand.delivery.id, error)
        finally:
            self._busy[errand.delivery.webhook_id] -= 1
            self._busy += Counter()  # drops zero counts
            self._wake.set()

    async def wait_until_idle(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def test(self, webhook: str) -> Delivery:
        """Send a test message now, and return its delivery."""
        errand = await self._engine.webhooks.make_test_delivery(webhook)
        await self.deliver(errand)
        return await self._engine.webhooks.delivery(errand.delivery.id)

    async def deliver(self, errand: DueDelivery) -> None:
        began = self._clock.monotonic()
        answer = await self._send(*errand)
        took = self._clock.monotonic() - began
        at, ms = self._clock.now(), int(took * 1000)
        attempt = DeliveryTry(at=at, ms=ms, status=answer.status, error=answer.error, excerpt=answer.excerpt)
        outcome = self._outcome_of(errand.delivery, answer, attempt)
        if self.on_sent is not None:
            self.on_sent(DELIVER if errand.webhook else ALERT, took, answer.status, outcome.state)
        settling = await self._engine.webhooks.settle_delivery(errand.delivery, outcome)
        self._log_outcome(errand, outcome, settling.recovered, settling.disabled)

    async def _send(self, delivery: Delivery, webhook: Webhook | None) -> DeliveryResponse:
        url = webhook.url if webhook else self._alerts.url
        try:
            target = self.egress.check(url, listed=webhook is not None)
        except Invalid as error:
            return DeliveryResponse(None, error.message)
        now, body = self._clock.now(), delivery.body.encode() if webhook else formatted(delivery.body, target)
        secrets = webhook.signing(now) if webhook else []
        seconds = TOTAL_SECONDS if webhook else self._alerts.timeout_seconds
        return await self._sender.send(target, signing.headers(delivery.id, now, body, secrets), body, seconds)

    def _outcome_of(self, delivery: Delivery, answer: DeliveryResponse, attempt: DeliveryTry) -> DeliveryOutcome:
        if answer.status is not None and 200 <= answer.status < 300:
            return DeliveryOutcome(attempt, "delivered")
        gone = answer.status == GONE
        if gone or delivery.tries >= TRIES_MAX or delivery.event == TEST:
            return DeliveryOutcome(attempt, "failed", gone=gone)
        chance = self._ids.jitter()
        pause = delay(delivery.tries, FIRST_SECONDS, CAP_SECONDS, chance, factor=FACTOR, jitter=JITTER)
        return DeliveryOutcome(attempt, "pending", max(pause, min(answer.retry_after or 0, CAP_SECONDS)))

    def _log_outcome(
        self, errand: DueDelivery, outcome: DeliveryOutcome, recovered: bool, disabled: str | None
    ) -> None:
        """Without the URL, which may contain a secret of the receiver."""
        if recovered:
            log.info("webhook %s succeeds again", errand.delivery.webhook_id)
        if disabled:
            log.warning("webhook %s is disabled: %s", errand.delivery.webhook_id, disabled)
        if errand.webhook is None and outcome.state != "delivered":
            log.warning(
                "alert %s was not delivered: %s", errand.delivery.event, outcome.tried.error or outcome.tried.status
            )

    async def count_failures_if_due(self) -> None:
        """Failures are counted with or without subscriptions."""
        if (now := self._clock.monotonic()) - self._counted >= IDLE_SECONDS:
            self._counted = now
            self.failures = await self._engine.webhooks.count_failures()

    async def prune_if_due(self) -> None:
        """In batches; if it takes too long, the next round continues."""
        began = self._clock.monotonic()
        if began - self._pruned < PRUNE_SECONDS:
            return
        while await self._engine.webhooks.prune_deliveries() >= self._engine.limits.sweep_batch:
            if self._clock.monotonic() - began >= PRUNING_SECONDS:
                return
        self._pruned = self._clock.monotonic()
