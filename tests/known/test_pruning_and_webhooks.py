"""Pruning keeps up with the work, and deletes no event that a webhook has still to be told of."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits, Retention
from holdfast.engine.maintenance.prune import UNREAD_SECONDS, Overdue
from holdfast.ids import SeededIds
from holdfast.maintenance.maintainer import Maintainer
from holdfast.model import NewJob
from holdfast.store.queries import q
from holdfast.webhooks import deliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender
from tests.engine.log import settled
from tests.engine.steps import ask
from tests.webhooks.steps import complete, create, sent_to, subscribe

AT_ONCE = Retention(succeeded=0, dead=None, canceled=0, rejected=None)
DAY = 86_400


async def read(engine: Engine) -> None:
    """What a server does for webhooks, after all that is still open on this database server has ended."""
    await settled(engine)
    await engine.webhooks.fan_out()


async def test_a_job_past_its_retention_is_kept_until_its_webhook_events_are_read(engine: Engine, worker: str) -> None:
    webhook = await subscribe(engine)
    await read(engine)
    await complete(engine, worker)

    assert await engine.maintenance.prune(AT_ONCE) == 0
    await read(engine)

    told = [delivery.event for delivery in await sent_to(engine, webhook)]
    assert told == ["job.created", "job.started", "job.completed"]
    assert await engine.maintenance.prune(AT_ONCE) == 1


async def test_jobs_of_tenants_without_a_webhook_do_not_wait_for_the_reader(engine: Engine, worker: str) -> None:
    await subscribe(engine, tenant="other")
    await read(engine)
    await complete(engine, worker)
    assert await engine.maintenance.prune(AT_ONCE) == 1


@pytest.mark.parametrize("canceled", [False, True])
async def test_jobs_of_other_tenants_are_deleted_though_older_unread_ones_fill_a_whole_batch(
    engine: Engine, worker: str, canceled: bool
) -> None:
    engine.ctx.limits = EngineLimits(sweep_batch=2)
    await subscribe(engine)
    await read(engine)
    for tenant in ("default", "default", "default", "other", "other", "another"):
        if canceled:
            await engine.cancel((await engine.create(NewJob(type="T", tenant=tenant))).id)
        else:
            await complete(engine, worker, tenant=tenant)
    assert [await engine.maintenance.prune(AT_ONCE) for _ in range(3)] == [2, 1, 0]
    assert {row["tenant"] for row in await ask(engine, "SELECT tenant FROM holdfast_jobs")} == {"default"}
    await read(engine)
    assert [await engine.maintenance.prune(AT_ONCE) for _ in range(2)] == [2, 1]


async def test_a_disabled_webhook_does_not_delay_pruning(engine: Engine, worker: str) -> None:
    webhook = await subscribe(engine)
    await read(engine)
    await complete(engine, worker)
    await engine.webhooks.change(webhook, enabled=False)
    assert await engine.maintenance.prune(AT_ONCE) == 1


async def test_without_a_webhook_reader_jobs_are_kept_at_most_a_week_longer(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await subscribe(engine)
    await read(engine)
    await complete(engine, worker)
    clock.advance(UNREAD_SECONDS - 1)
    assert await engine.maintenance.prune(AT_ONCE) == 0
    clock.advance(1)
    assert await engine.maintenance.prune(AT_ONCE) == 1


async def test_a_backlog_of_finished_jobs_is_deleted_in_one_round_of_maintenance(
    engine: Engine, clock: MovableClock
) -> None:
    engine.ctx.limits = EngineLimits(sweep_batch=5)
    for _ in range(6):
        for job in await engine.create_many([NewJob(type="n") for _ in range(5)]):
            await engine.cancel(job.id)
    maintenance = Maintainer(engine, clock, SeededIds(1), every=10, retention=AT_ONCE)
    while await maintenance.sweep():
        continue
    assert await ask(engine, "SELECT id FROM holdfast_jobs") == []


async def test_a_backlog_of_old_deliveries_is_deleted_in_one_round_of_the_deliverer(
    engine: Engine, worker: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer, "PRUNE_SECONDS", 0.0)
    engine.ctx.limits = EngineLimits(sweep_batch=2)
    webhook = await subscribe(engine)
    await read(engine)
    for _ in range(4):
        await complete(engine, worker)
    await read(engine)
    await engine.webhooks.change(webhook, enabled=False)
    clock.advance(8 * DAY)

    await deliverer.WebhookDeliverer(engine, clock, SeededIds(1), WebhookSender(Egress(private=True))).prune_if_due()

    assert await ask(engine, "SELECT id FROM holdfast_deliveries") == []


async def test_overdue_rows_are_counted(engine: Engine, worker: str, clock: MovableClock) -> None:
    await subscribe(engine)
    for _ in range(3):
        await complete(engine, worker)
    await read(engine)
    retention = Retention(succeeded=DAY, dead=None, canceled=None, rejected=None)
    clock.advance(DAY + 60)
    assert (await engine.maintenance.overdue(retention)).jobs == 0  # its turn comes within minutes
    clock.advance(DAY)
    assert await engine.maintenance.overdue(retention) == Overdue(jobs=3, deliveries=0)
    clock.advance(6 * DAY)
    assert (await engine.maintenance.overdue(retention)).deliveries == 9
    await engine.maintenance.prune(retention)
    assert (await engine.maintenance.overdue(retention)).jobs == 0


async def test_jobs_that_run_wait_or_have_just_ended_are_not_overdue(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """However long ago they were created."""
    await create(engine, type="waits")
    await create(engine)
    [lease] = await engine.claim(worker, types=["T"])
    canceled, canceled_late = [await create(engine, type="canceled") for _ in range(2)]
    await engine.cancel(canceled)
    clock.advance(DAY)
    await engine.complete(worker, lease.id, lease.token)
    await engine.cancel(canceled_late)
    clock.advance(600)
    for seconds, jobs in ((0, 3), (DAY / 2, 1)):
        assert (await engine.maintenance.overdue(Retention(succeeded=seconds, canceled=seconds))).jobs == jobs
    assert (await engine.maintenance.overdue(Retention(succeeded=0, dead=0, rejected=0))).jobs == 1


async def test_unread_jobs_are_looked_up_by_id(engine: Engine) -> None:
    first, _ = [await create(engine) for _ in range(2)]
    place = {"pos": 0, "job_id": first, "seq": 0}
    found = await engine.store.read(lambda tx: tx.all(q.unread_jobs, ids=[first], **place))
    assert [row["job_id"] for row in found] == [first]
