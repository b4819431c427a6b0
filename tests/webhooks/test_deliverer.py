"""From the log to the receiver, at least once, whatever happens on the way."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.webhooks.deliveries import LEASE_SECONDS
from holdfast.engine.webhooks.webhooks import NewWebhook
from holdfast.errors import StoreUnavailable
from holdfast.webhooks import deliverer as deliverer_module
from holdfast.webhooks.deliverer import AT_ONCE_EACH, TRIES_MAX, WebhookDeliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender
from tests.webhooks.conftest import Couriers
from tests.webhooks.receiver import Got, Receiver, answer, receiving
from tests.webhooks.steps import NOWHERE, complete, create, deliver, sent_to, subscribe, until

HOUR = 3600


@pytest.fixture
def store_url(fresh_sqlite_url: str) -> str:
    """What differs between the stores is tried where deliveries are claimed and settled."""
    return fresh_sqlite_url


async def hang(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_a_delivery_has_a_valid_signature(
    engine: Engine, courier: WebhookDeliverer, receiver: Receiver, worker: str, clock: MovableClock
) -> None:
    """SEC-29: by somebody else's implementation, with the old secret and with the new one."""
    clock.advance((datetime.now(UTC) - clock.now()).total_seconds())
    first = await engine.webhooks.subscribe(NewWebhook(url=receiver.url))
    second = await engine.webhooks.rotate(first.webhook.id)
    job = await complete(engine, worker)
    assert await deliver(courier) == 1
    [got] = receiver.got
    for secret in (first.secret, second.secret):
        said = Webhook(secret).verify(got.body, got.headers)
        assert (said["type"], said["data"]["jobId"]) == ("job.completed", job)


async def test_a_delivery_is_retried_until_it_is_accepted(
    engine: Engine, courier: WebhookDeliverer, receiver: Receiver, clock: MovableClock
) -> None:
    """F38. The id is the same at each try, the time is not (SEC-29)."""
    receiver.answers = [answer(500, b"broken"), answer(404), answer(302, location="/"), answer(200)]
    webhook = await subscribe(engine, receiver.url)
    await create(engine)
    waits = (0, 7, 19, 56)  # at most, with jitter: 5, 15, 45 s
    for tries, wait in enumerate(waits, 1):
        clock.advance(wait)
        assert await deliver(courier) == 1
        assert len(receiver.got) == tries
    assert await deliver(courier) == 0
    [delivery] = await sent_to(engine, webhook)
    assert (delivery.state, delivery.tries) == ("delivered", 4)
    assert [each.status for each in delivery.log] == [500, 404, 302, 200]
    assert delivery.log[0].excerpt == "broken"
    assert len({got.id for got in receiver.got}) == 1
    assert len({got.headers["webhook-timestamp"] for got in receiver.got}) == 4


async def test_a_delivery_is_retried_while_the_receiver_is_unreachable(
    engine: Engine, courier: WebhookDeliverer, clock: MovableClock
) -> None:
    async with receiving() as receiver:
        url = receiver.url
    webhook = await subscribe(engine, url)
    await create(engine)
    await deliver(courier)
    assert (await engine.webhooks.get(webhook)).failing_since is not None
    async with receiving(port=int(url.split(":")[2].split("/")[0])) as receiver:
        clock.advance(10)
        await deliver(courier)
        assert len(receiver.got) == 1
    assert (await engine.webhooks.get(webhook)).failing_since is None


async def test_a_delivery_fails_for_good_after_about_a_day(
    engine: Engine, courier: WebhookDeliverer, clock: MovableClock
) -> None:
    webhook = await subscribe(engine)
    began = clock.now()
    await create(engine)
    await courier.fan_out()
    last = began
    for _ in range(TRIES_MAX):
        [delivery] = await sent_to(engine, webhook)
        clock.advance((delivery.next_at - clock.now()).total_seconds())
        last = clock.now()
        await deliver(courier)
    [delivery] = await sent_to(engine, webhook)
    assert (delivery.state, delivery.tries) == ("failed", TRIES_MAX)
    assert 18 * HOUR < (last - began).total_seconds() < 30 * HOUR
    clock.advance(24 * HOUR)
    assert await deliver(courier) == 0


async def test_a_retry_waits_for_retry_after(
    engine: Engine, courier: WebhookDeliverer, receiver: Receiver, clock: MovableClock
) -> None:
    receiver.answers = [answer(429, retry_after="600"), answer(429, retry_after="999999999")]
    webhook = await subscribe(engine, receiver.url)
    await create(engine)
    for most in (600, 4 * HOUR):
        await deliver(courier)
        [delivery] = await sent_to(engine, webhook)
        assert (delivery.next_at - clock.now()).total_seconds() == most
        clock.advance(most)


async def test_a_410_response_disables_the_webhook(
    engine: Engine, courier: WebhookDeliverer, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-32."""
    receiver.otherwise = answer(410)
    webhook = await subscribe(engine, receiver.url)
    await create(engine)
    await deliver(courier)
    assert not (await engine.webhooks.get(webhook)).enabled
    assert f"webhook {webhook} is disabled" in caplog.text
    await create(engine)
    assert await deliver(courier) == 0
    assert len(receiver.got) == 1


async def test_a_delivery_interrupted_by_a_crash_is_sent_again_with_the_same_id(
    engine: Engine, couriers: Couriers, receiver: Receiver, clock: MovableClock
) -> None:
    """L12."""
    await subscribe(engine, receiver.url)
    await create(engine)
    crashing, next_one = couriers(), couriers()

    async def crash(*args: object) -> None:
        raise StoreUnavailable("the process is gone")

    webhooks = type("Crashing", (), {"settle_delivery": crash})()
    crashing._engine = type("Crashing", (), {"webhooks": webhooks})()  # type: ignore[assignment]
    await next_one.fan_out()
    [webhook] = await engine.webhooks.all()
    [errand] = await engine.webhooks.claim_deliveries({webhook.id: 1})
    with pytest.raises(StoreUnavailable):
        await crashing.deliver(errand)
    assert await deliver(next_one) == 0, "not before its lease is over"
    clock.advance(LEASE_SECONDS)
    assert await deliver(next_one) == 1
    first, second = receiver.got
    assert (first.id, first.body) == (second.id, second.body)


async def test_a_hanging_receiver_does_not_delay_others(
    engine: Engine, courier: WebhookDeliverer, receiver: Receiver
) -> None:
    """SEC-32, F38."""
    async with receiving() as slow:
        slow.otherwise = hang
        await subscribe(engine, slow.url)
        await subscribe(engine, receiver.url)
        for _ in range(20):
            await create(engine)
        await courier.fan_out()
        running = asyncio.create_task(courier.run())
        await receiver.has(20)
        assert len(slow.got) <= AT_ONCE_EACH
        running.cancel()
        await asyncio.wait([running])


async def test_concurrent_deliveries_are_limited(
    engine: Engine, courier: WebhookDeliverer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer_module, "AT_ONCE", 6)
    receiver.otherwise = hang
    for _ in range(3):
        await subscribe(engine, receiver.url)
    for _ in range(5):
        await create(engine)
    await courier.fan_out()
    for _ in range(3):
        await courier.start_deliveries()
    await receiver.has(6)
    assert await courier.start_deliveries() == 0
    running = asyncio.create_task(courier.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert len(receiver.got) == 6


async def test_egress_rules_are_checked_at_each_attempt(engine: Engine, receiver: Receiver) -> None:
    """SEC-30: what was stored before the rules were stricter is not sent."""
    webhook = await subscribe(engine, receiver.url)
    await create(engine)
    strict = WebhookDeliverer(engine, engine.ctx.clock, engine.ctx.ids, WebhookSender(Egress()))
    await deliver(strict)
    [delivery] = await sent_to(engine, webhook)
    assert delivery.log[0].error == "invalid webhook URL: it must begin with https://"
    assert receiver.got == []


async def test_a_test_delivery_is_sent_once_and_immediately(
    engine: Engine, courier: WebhookDeliverer, receiver: Receiver
) -> None:
    receiver.answers = [answer(200, b"hello"), answer(500)]
    webhook = await subscribe(engine, receiver.url)
    await engine.webhooks.change(webhook, enabled=False)
    good, bad = [await courier.test(webhook) for _ in range(2)]
    assert (good.state, good.log[0].excerpt) == ("delivered", "hello")
    assert (bad.state, bad.log[0].status) == ("failed", 500)
    assert receiver.got[0].said["type"] == "webhook.test"


async def test_a_database_outage_is_logged_once_and_deliveries_continue_afterwards(
    engine: Engine,
    courier: WebhookDeliverer,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(deliverer_module, "IDLE_SECONDS", 0.01)
    away, failed = True, 0
    fan_out = engine.webhooks.fan_out

    async def sometimes(*args: object) -> object:
        nonlocal failed
        if away:
            failed += 1
            raise StoreUnavailable("away")
        return await fan_out(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.webhooks, "fan_out", sometimes)
    await subscribe(engine, receiver.url)
    await create(engine)
    running = asyncio.create_task(courier.run())

    async def failed_often() -> bool:
        return failed >= 3

    await until(failed_often)
    away = False
    await receiver.has(1)
    running.cancel()
    await asyncio.wait([running])
    assert caplog.text.count("cannot send webhooks, retrying: away") == 1


async def test_an_outcome_that_cannot_be_stored_does_not_stop_the_deliverer(
    engine: Engine,
    courier: WebhookDeliverer,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def away(*args: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(engine.webhooks, "settle_delivery", away)
    await subscribe(engine, receiver.url)
    await create(engine)
    assert await deliver(courier) == 1
    assert "cannot store the outcome of delivery" in caplog.text
    assert not courier._busy, "its place is free again"


async def test_old_deliveries_are_pruned_periodically(
    engine: Engine, courier: WebhookDeliverer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer_module, "PRUNE_SECONDS", 0)
    pruned = asyncio.Event()

    async def prune() -> int:
        pruned.set()
        return 0

    monkeypatch.setattr(engine.webhooks, "prune_deliveries", prune)
    await courier._round()
    assert pruned.is_set()


async def test_the_log_contains_no_url_and_no_secret(
    engine: Engine, courier: WebhookDeliverer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="holdfast")
    made = await engine.webhooks.subscribe(NewWebhook(url=NOWHERE + "?token=canary"))
    await engine.cancel(await create(engine))
    assert await deliver(courier) == 1
    assert "canary" not in caplog.text
    assert made.secret not in caplog.text
