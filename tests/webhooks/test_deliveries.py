"""Messages on their way: claimed, settled, given up, replayed, forgotten."""

from typing import Any

import asyncpg
import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.engine.webhooks.deliveries import KEPT_SECONDS, LEASE_SECONDS, DeliveryOutcome, DueDelivery
from holdfast.errors import Conflict, Invalid, NotFound
from holdfast.ids import SeededIds
from holdfast.model.webhook import DeliveryTry
from holdfast.store import open_store
from tests.engine.steps import UNKNOWN_ID, ask
from tests.webhooks.steps import create, sent_to, subscribe

DAY = 86_400


async def made(engine: Engine, *, count: int = 1, **wanted: Any) -> str:
    """A webhook with messages that are due."""
    webhook = await subscribe(engine, **wanted)
    for _ in range(count):
        await create(engine)
    await engine.webhooks.fan_out()
    return webhook


async def claim(engine: Engine, webhook: str, room: int = 10) -> list[DueDelivery]:
    return await engine.webhooks.claim_deliveries({webhook: room})


def outcome(engine: Engine, state: str = "delivered", **options: Any) -> DeliveryOutcome:
    return DeliveryOutcome(DeliveryTry(at=engine.ctx.clock.now(), ms=7, status=200), state, **options)  # type: ignore[arg-type]


async def test_each_delivery_is_claimed_once_per_lease(engine: Engine, clock: MovableClock) -> None:
    webhook = await made(engine, count=3)
    assert len(await claim(engine, webhook, 2)) == 2
    assert len(await claim(engine, webhook, 2)) == 1
    assert await claim(engine, webhook) == []
    clock.advance(LEASE_SECONDS)
    again = await claim(engine, webhook)
    assert [errand.delivery.tries for errand in again] == [2, 2, 2]


async def test_the_delivery_that_is_due_longest_is_claimed_first(engine: Engine, clock: MovableClock) -> None:
    webhook = await made(engine)
    [first] = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(first.delivery, outcome(engine, "pending", delay_seconds=50))
    clock.advance(60)
    await create(engine)
    await engine.webhooks.fan_out()
    [errand] = await claim(engine, webhook, 1)
    assert errand.delivery.id == first.delivery.id


async def test_a_claim_returns_deliveries_of_one_webhook(engine: Engine) -> None:
    webhook = await subscribe(engine)
    other = await made(engine)
    assert [errand.delivery.webhook_id for errand in await claim(engine, webhook)] == [webhook]
    assert [errand.delivery.state for errand in await claim(engine, other)] == ["pending"]


async def test_only_webhooks_with_due_deliveries_are_listed_for_claiming(engine: Engine, clock: MovableClock) -> None:
    idle = await subscribe(engine, events=("job.rejected",))
    webhook = await made(engine)
    assert await engine.webhooks.with_work() == [webhook]
    assert await engine.webhooks.with_work(busy=[webhook]) == []
    [errand] = await claim(engine, webhook)
    assert await engine.webhooks.with_work() == [], "it is not due while somebody has it"
    await engine.webhooks.settle_delivery(errand.delivery, outcome(engine))
    clock.advance(DAY)
    assert await engine.webhooks.with_work() == [], "it has arrived"
    assert idle


async def test_a_disabled_webhook_keeps_its_deliveries(engine: Engine) -> None:
    webhook = await made(engine)
    await engine.webhooks.change(webhook, enabled=False)
    assert await engine.webhooks.with_work() == []
    await engine.webhooks.change(webhook, enabled=True)
    assert await engine.webhooks.with_work() == [webhook]


async def test_deliveries_locked_by_another_deliverer_are_skipped(fresh_postgres_url: str) -> None:
    engine = Engine(await open_store(fresh_postgres_url, Clock(), SeededIds(7)))
    other = await asyncpg.connect(fresh_postgres_url)
    try:
        webhook = await made(engine, count=2)
        async with other.transaction():
            await other.execute("SELECT 1 FROM holdfast_deliveries ORDER BY id LIMIT 1 FOR UPDATE")
            assert len(await claim(engine, webhook)) == 1
        assert len(await claim(engine, webhook)) == 1
    finally:
        await other.close()
        await engine.close()


async def test_a_delivered_message_is_final(engine: Engine, clock: MovableClock) -> None:
    webhook = await made(engine, count=2)
    first, second = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(first.delivery, outcome(engine))
    clock.advance(LEASE_SECONDS + 1)
    assert [errand.delivery.id for errand in await claim(engine, webhook)] == [second.delivery.id]
    done = await engine.webhooks.delivery(first.delivery.id)
    assert (done.state, done.log[0].status, done.finished_at is not None) == ("delivered", 200, True)


async def test_a_failed_delivery_is_due_again_after_its_delay(engine: Engine, clock: MovableClock) -> None:
    webhook = await made(engine)
    [errand] = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(errand.delivery, outcome(engine, "pending", delay_seconds=5))
    waiting = await engine.webhooks.delivery(errand.delivery.id)
    assert (waiting.state, waiting.finished_at) == ("pending", None)
    clock.advance(4)
    assert await claim(engine, webhook) == []
    clock.advance(1)
    assert len(await claim(engine, webhook)) == 1


async def test_the_outcome_of_an_expired_claim_is_rejected(engine: Engine, clock: MovableClock) -> None:
    """The number of the try is its fence."""
    webhook = await made(engine)
    [slow] = await claim(engine, webhook)
    clock.advance(LEASE_SECONDS)
    [quick] = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(slow.delivery, outcome(engine, "failed"))
    assert (await engine.webhooks.delivery(slow.delivery.id)).state == "pending"
    await engine.webhooks.settle_delivery(quick.delivery, outcome(engine))
    await engine.webhooks.settle_delivery(quick.delivery, outcome(engine, "failed"))
    assert (await engine.webhooks.delivery(slow.delivery.id)).state == "delivered"


async def test_the_delivery_log_keeps_the_last_attempts(engine: Engine, clock: MovableClock) -> None:
    webhook = await made(engine)
    for _ in range(12):
        [errand] = await claim(engine, webhook)
        await engine.webhooks.settle_delivery(errand.delivery, outcome(engine, "pending", delay_seconds=1))
        clock.advance(1)
    found = await engine.webhooks.delivery(errand.delivery.id)
    assert (found.tries, len(found.log)) == (12, 10)
    assert found.log[0].at < found.log[-1].at


async def test_a_webhook_is_failing_from_its_first_failure_until_a_success(engine: Engine, clock: MovableClock) -> None:
    other = await subscribe(engine, events=("job.rejected",))
    webhook = await made(engine, count=3)
    one, two, three = await claim(engine, webhook)
    began = clock.now()
    await engine.webhooks.settle_delivery(one.delivery, outcome(engine, "pending"))
    clock.advance(5)
    await engine.webhooks.settle_delivery(two.delivery, outcome(engine, "pending"))
    assert (await engine.webhooks.get(webhook)).failing_since == began
    assert (await engine.webhooks.get(other)).failing_since is None
    assert (await engine.webhooks.settle_delivery(three.delivery, outcome(engine))).recovered
    assert (await engine.webhooks.get(webhook)).failing_since is None
    [one, *_] = await claim(engine, webhook)
    assert not (await engine.webhooks.settle_delivery(one.delivery, outcome(engine))).recovered


async def test_a_success_of_one_webhook_does_not_clear_the_failure_of_another(engine: Engine) -> None:
    webhook, other = await subscribe(engine), await made(engine)
    [bad], [good] = await claim(engine, webhook), await claim(engine, other)
    await engine.webhooks.settle_delivery(bad.delivery, outcome(engine, "pending"))
    await engine.webhooks.settle_delivery(good.delivery, outcome(engine))
    assert (await engine.webhooks.get(webhook)).failing_since is not None


async def test_a_410_response_disables_the_webhook_at_once_and_is_audited(engine: Engine) -> None:
    """SEC-32."""
    other = await subscribe(engine, events=("job.rejected",))
    webhook = await made(engine, count=2)
    one, two = await claim(engine, webhook)
    settling = await engine.webhooks.settle_delivery(one.delivery, outcome(engine, "failed", gone=True))
    found = await engine.webhooks.get(webhook)
    assert not found.enabled
    assert found.disabled_reason == settling.disabled == "the receiver answered 410 Gone"
    assert (await engine.webhooks.get(other)).enabled
    assert (await engine.audit.page()).lines[0].action == "webhook.disable"
    again = await engine.webhooks.settle_delivery(two.delivery, outcome(engine, "failed", gone=True))
    assert again.disabled is None, "it is off already"


async def test_a_webhook_that_fails_for_days_is_disabled(engine: Engine, clock: MovableClock) -> None:
    """SEC-32. One message that is given up is not enough, nor is a single failure after a long silence."""
    webhook = await made(engine, count=4)
    one, two, three, four = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(one.delivery, outcome(engine, "failed"))
    assert (await engine.webhooks.get(webhook)).enabled
    clock.advance(5 * DAY - 1)
    await engine.webhooks.settle_delivery(two.delivery, outcome(engine, "failed"))
    assert (await engine.webhooks.get(webhook)).enabled
    clock.advance(1)
    await engine.webhooks.settle_delivery(three.delivery, outcome(engine, "pending"))
    assert (await engine.webhooks.get(webhook)).enabled
    await engine.webhooks.settle_delivery(four.delivery, outcome(engine, "failed"))
    assert (await engine.webhooks.get(webhook)).disabled_reason == "nothing could be delivered for 5 days"


async def test_enabling_a_webhook_clears_its_failure(engine: Engine) -> None:
    webhook = await made(engine)
    [errand] = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(errand.delivery, outcome(engine, "failed", gone=True))
    found = await engine.webhooks.change(webhook, enabled=True)
    assert (found.enabled, found.disabled_reason, found.failing_since) == (True, None, None)


async def test_updating_a_failing_webhook_keeps_its_failure(engine: Engine) -> None:
    webhook = await made(engine)
    [errand] = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(errand.delivery, outcome(engine, "pending"))
    assert (await engine.webhooks.change(webhook, name="renamed")).failing_since is not None


async def test_a_replay_sends_the_same_message_and_keeps_its_log(engine: Engine) -> None:
    webhook = await made(engine, count=2)
    errand, other = await claim(engine, webhook)
    for each in (errand, other):
        await engine.webhooks.settle_delivery(each.delivery, outcome(engine, "failed"))
    replayed = await engine.webhooks.replay_delivery(errand.delivery.id)
    assert (replayed.state, replayed.tries, replayed.finished_at) == ("pending", 0, None)
    [again] = await claim(engine, webhook)
    assert (again.delivery.id, again.delivery.body) == (errand.delivery.id, errand.delivery.body)
    assert len(again.delivery.log) == 1


async def test_a_replay_to_a_disabled_or_deleted_webhook_is_an_error(engine: Engine) -> None:
    webhook = await made(engine)
    [delivery] = await sent_to(engine, webhook)
    await engine.webhooks.change(webhook, enabled=False)
    with pytest.raises(Conflict) as refused:
        await engine.webhooks.replay_delivery(delivery.id)
    assert refused.value.code == "webhook_disabled"
    await engine.webhooks.delete(webhook)
    for unknown in (delivery.id, UNKNOWN_ID, "no id"):
        with pytest.raises(NotFound):
            await engine.webhooks.replay_delivery(unknown)


async def test_deliveries_are_listed_in_pages_newest_first(engine: Engine) -> None:
    await made(engine)
    webhook = await made(engine, count=5)
    first = await engine.webhooks.deliveries(webhook, limit=3)
    rest = await engine.webhooks.deliveries(webhook, limit=3, cursor=first.next)
    ids = [delivery.id for delivery in (*first.deliveries, *rest.deliveries)]
    assert (len(ids), ids, rest.next) == (5, sorted(ids, reverse=True), None)
    [errand] = await claim(engine, webhook, 1)
    await engine.webhooks.settle_delivery(errand.delivery, outcome(engine))
    assert [each.id for each in (await engine.webhooks.deliveries(webhook, state="delivered")).deliveries] == [
        errand.delivery.id
    ]
    assert len((await engine.webhooks.deliveries(webhook, state="pending")).deliveries) == 4
    with pytest.raises(Invalid):
        await engine.webhooks.deliveries(webhook, cursor="no cursor")
    with pytest.raises(Invalid):
        await engine.webhooks.deliveries(webhook, limit=0)
    with pytest.raises(NotFound):
        await engine.webhooks.deliveries(UNKNOWN_ID)


async def test_finished_deliveries_are_pruned_after_a_week_and_waiting_ones_are_kept(
    engine: Engine, clock: MovableClock
) -> None:
    webhook = await made(engine, count=2)
    done, waiting = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(done.delivery, outcome(engine))
    clock.advance(KEPT_SECONDS - 1)
    await engine.webhooks.settle_delivery(waiting.delivery, outcome(engine, "pending", delay_seconds=60))
    assert await engine.webhooks.prune_deliveries() == 0
    clock.advance(1)
    assert await engine.webhooks.prune_deliveries() == 1
    assert [delivery.id for delivery in await sent_to(engine, webhook)] == [waiting.delivery.id]


async def test_deliveries_of_a_deleted_webhook_are_pruned(engine: Engine, clock: MovableClock) -> None:
    webhook = await made(engine, count=2)
    await claim(engine, webhook, 1)
    await engine.webhooks.delete(webhook)
    clock.advance(KEPT_SECONDS)
    assert await engine.webhooks.prune_deliveries() == 1
    clock.advance(LEASE_SECONDS)
    assert await engine.webhooks.prune_deliveries() == 1
    assert await ask(engine, "SELECT id FROM holdfast_deliveries") == []


async def test_a_week_old_delivery_that_is_claimed_again_is_kept(engine: Engine, clock: MovableClock) -> None:
    webhook = await made(engine)
    [errand] = await claim(engine, webhook)
    await engine.webhooks.settle_delivery(errand.delivery, outcome(engine))
    clock.advance(KEPT_SECONDS - 1)
    await engine.webhooks.replay_delivery(errand.delivery.id)
    clock.advance(10)
    assert await engine.webhooks.prune_deliveries() == 0


async def test_a_test_delivery_is_claimed_by_its_creator(engine: Engine) -> None:
    webhook = await made(engine)
    errand = await engine.webhooks.make_test_delivery(webhook)
    assert (errand.delivery.event, errand.delivery.tries) == ("webhook.test", 1)
    assert [each.delivery.event for each in await claim(engine, webhook)] == ["job.created"]
