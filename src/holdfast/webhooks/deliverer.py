"""Takes what is due to where it should go, at least once. Every server has one, and they share the work."""

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
from holdfast.webhooks.alerts import AlertSettings, shaped
from holdfast.webhooks.sender import TOTAL_SECONDS, DeliveryResponse, WebhookSender

LISTENING_SECONDS, QUIET_SECONDS = 0.25, 5.0
BREATH_SECONDS = 0.02  # several that come back at about the same time are one reason to look
PRUNE_SECONDS = 600.0  # from one pruning of deliveries to the next
PRUNING_SECONDS = 2.0  # at a time: then what is due is sent
AT_ONCE, AT_ONCE_EACH = 32, 4  # messages on their way: in all, and to one receiver
PAGES_MAX = 20  # of the log in one round, so that deliveries get their turn

TRIES_MAX = 13  # over about a day
FIRST_SECONDS, FACTOR, CAP_SECONDS, JITTER = 5.0, 3.0, 4 * 3600.0, 0.2
GONE = 410

EXTENSIONS_SECONDS = 15.0

DELIVER, ALERT = "deliver", "alert"
# Told what was sent, how many seconds it took, the status that came back, and what became of the message.
Watching = Callable[[str, float, int | None, str], None]

log = logging.getLogger(__name__)


class WebhookDeliverer:
    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, sender: WebhookSender, alerts: AlertSettings | None = None
    ) -> None:
        self._engine, self._clock, self._ids, self._sender = engine, clock, ids, sender
        self._alerts = alerts or AlertSettings()
        self._watch = AlertRules(self._alerts.kinds if self._alerts.url else frozenset(), self._alerts.cooldown_seconds)
        self._away: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()
        self._look = asyncio.Event()
        self._failures = LoopFailures("send webhooks", log)
        self._pruned = clock.monotonic()
        self._looked_for_extensions = -math.inf
        self.egress = sender.egress
        self._counted = -math.inf
        self.failures: FailureCounts | None = None  # of all processes, as last read
        self.watch: Watching | None = None

    def look(self) -> None:
        """There may be something to do: a hint, nothing depends on it."""
        self._look.set()

    async def run(self) -> None:
        """Until cancelled. What is on its way then is sent again by whoever comes next."""
        try:
            while True:
                self._look.clear()
                await self._clock.within(self._look, await self._round())
                await self._clock.sleep(BREATH_SECONDS)
        finally:
            for task in self._away:
                task.cancel()
            await asyncio.gather(*self._away, return_exceptions=True)

    async def close(self) -> None:
        """When `run` has ended for good."""
        await self._sender.close()

    async def _round(self) -> float:
        """Once through everything; how long to wait before the next time."""
        try:
            listening = await self.fan_out()
            await self._look_for_extensions_now_and_then()
            await self.set_out()
            await self.count_now_and_then()
            await self.prune_now_and_then()
        except Exception as error:
            self._failures.failed(error)
            return QUIET_SECONDS
        self._failures.succeeded()
        return LISTENING_SECONDS if listening else QUIET_SECONDS

    async def fan_out(self) -> bool:
        """Does anybody listen?"""
        listening = False
        for _ in range(PAGES_MAX):
            told = await self._engine.webhooks.fan_out(self._watch)
            listening = told.listening
            if not told.full:
                break
        return listening

    async def look_for_extensions(self) -> None:
        """Are there some that jobs need and no live process has?"""
        if EXTENSION in self._watch.kinds:
            await self._engine.webhooks.alert_of_extensions(self._watch)

    async def _look_for_extensions_now_and_then(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked_for_extensions >= EXTENSIONS_SECONDS:
            self._looked_for_extensions = now
            await self.look_for_extensions()

    async def set_out(self) -> int:
        """Take as many messages as there is room for, and send them; who is back makes room for the next."""
        room = AT_ONCE - self._busy.total()
        if room <= 0:
            return 0
        full = [hook for hook, busy in self._busy.items() if busy >= AT_ONCE_EACH]
        waiting = await self._engine.webhooks.with_work(busy=full, alerts=bool(self._watch.kinds))
        errands = await self._engine.webhooks.claim_deliveries(self._rooms(waiting, room)) if waiting else []
        for errand in errands:
            self._busy[errand.delivery.webhook_id] += 1
            task = asyncio.create_task(self._bring(errand))
            self._away.add(task)
            task.add_done_callback(self._away.discard)
        return len(errands)

    def _rooms(self, waiting: list[str], room: int) -> dict[str, int]:
        """In another order each time, so that nobody always comes first."""
        rooms: dict[str, int] = {}
        for hook in sorted(waiting, key=lambda _: self._ids.jitter()):
            share = min(AT_ONCE_EACH - self._busy[hook], room - sum(rooms.values()))
            if share > 0:
                rooms[hook] = share
        return rooms

    async def _bring(self, errand: DueDelivery) -> None:
        try:
            await self.deliver(errand)
        except Exception as error:  # it is due again when its lease is over
            if is_outage(error):
                outage.failed(f"keep the outcome of delivery {errand.delivery.id}", error, often=False)
            else:
                log.warning("delivery %s: its outcome could not be kept: %s", errand.delivery.id, error)
        finally:
            self._busy[errand.delivery.webhook_id] -= 1
            self._busy += Counter()  # drops what is zero
            self._look.set()

    async def all_back(self) -> None:
        while self._away:
            await asyncio.gather(*self._away, return_exceptions=True)

    async def test(self, webhook: str) -> Delivery:
        """Send a message that is about nothing, now, and see what comes back."""
        errand = await self._engine.webhooks.make_test_delivery(webhook)
        await self.deliver(errand)
        return await self._engine.webhooks.delivery(errand.delivery.id)

    async def deliver(self, errand: DueDelivery) -> None:
        began = self._clock.monotonic()
        answer = await self._send(*errand)
        took = self._clock.monotonic() - began
        at, ms = self._clock.now(), int(took * 1000)
        tried = DeliveryTry(at=at, ms=ms, status=answer.status, error=answer.error, excerpt=answer.excerpt)
        outcome = self._judge(errand.delivery, answer, tried)
        if self.watch is not None:
            self.watch(DELIVER if errand.webhook else ALERT, took, answer.status, outcome.state)
        settling = await self._engine.webhooks.settle_delivery(errand.delivery, outcome)
        self._tell(errand, outcome, settling.recovered, settling.disabled)

    async def _send(self, delivery: Delivery, webhook: Webhook | None) -> DeliveryResponse:
        url = webhook.url if webhook else self._alerts.url
        try:
            target = self.egress.check(url, listed=webhook is not None)
        except Invalid as error:
            return DeliveryResponse(None, error.message)
        now, body = self._clock.now(), delivery.body.encode() if webhook else shaped(delivery.body, target)
        secrets = webhook.signing(now) if webhook else []
        seconds = TOTAL_SECONDS if webhook else self._alerts.timeout_seconds
        return await self._sender.send(target, signing.headers(delivery.id, now, body, secrets), body, seconds)

    def _judge(self, delivery: Delivery, answer: DeliveryResponse, tried: DeliveryTry) -> DeliveryOutcome:
        if answer.status is not None and 200 <= answer.status < 300:
            return DeliveryOutcome(tried, "delivered")
        gone = answer.status == GONE
        if gone or delivery.tries >= TRIES_MAX or delivery.event == TEST:
            return DeliveryOutcome(tried, "failed", gone=gone)
        chance = self._ids.jitter()
        pause = delay(delivery.tries, FIRST_SECONDS, CAP_SECONDS, chance, factor=FACTOR, jitter=JITTER)
        return DeliveryOutcome(tried, "pending", max(pause, min(answer.retry_after or 0, CAP_SECONDS)))

    def _tell(self, errand: DueDelivery, outcome: DeliveryOutcome, recovered: bool, disabled: str | None) -> None:
        """What an operator should find in the log; never a URL, which may hold a secret of the receiver's."""
        if recovered:
            log.info("webhook %s answers again", errand.delivery.webhook_id)
        if disabled:
            log.warning("webhook %s is switched off: %s", errand.delivery.webhook_id, disabled)
        if errand.webhook is None and outcome.state != "delivered":
            log.warning(
                "an alert (%s) was not taken: %s", errand.delivery.event, outcome.tried.error or outcome.tried.status
            )

    async def count_now_and_then(self) -> None:
        """Failures are counted whether or not anybody subscribes to them."""
        if (now := self._clock.monotonic()) - self._counted >= QUIET_SECONDS:
            self._counted = now
            self.failures = await self._engine.webhooks.count_failures()

    async def prune_now_and_then(self) -> None:
        """Step after step while they are full; if that takes too long, the next round goes on with it."""
        began = self._clock.monotonic()
        if began - self._pruned < PRUNE_SECONDS:
            return
        while await self._engine.webhooks.prune_deliveries() >= self._engine.limits.sweep_batch:
            if self._clock.monotonic() - began >= PRUNING_SECONDS:
                return
        self._pruned = self._clock.monotonic()
