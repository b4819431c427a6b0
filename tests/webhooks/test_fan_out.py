"""The event log becomes messages: for whom, of what, each once, none left out."""

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.engine.webhooks.alerts import AlertRules
from holdfast.engine.webhooks.fan_out import fan_out, skip
from holdfast.ids import SeededIds
from holdfast.lifecycle import ORCHESTRATION, State
from holdfast.model import NewJob
from holdfast.model.reports import Progress
from holdfast.model.webhook import ENDINGS
from holdfast.store import open_store, q
from holdfast.store.queries import Query
from tests.engine.steps import UNKNOWN_ID, ask, bring, run
from tests.webhooks.steps import complete, create, fail, sent_to, subscribe


async def told(engine: Engine, webhook: str) -> list[str]:
    await engine.webhooks.fan_out()
    return [delivery.event for delivery in await sent_to(engine, webhook)]


async def test_the_events_of_a_job_are_delivered_in_order(engine: Engine, worker: str) -> None:
    webhook = await subscribe(engine)
    lease = await run(engine, worker)
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=50))
    await engine.fail(worker, lease.id, lease.token, "E_X", retry_after_seconds=0)
    [lease] = await engine.claim(worker)
    await engine.complete(worker, lease.id, lease.token, {"secret": "result"})
    assert await told(engine, webhook) == [
        *("job.created", "job.started", "job.progress", "job.retrying", "job.started", "job.completed"),
    ]


async def test_a_message_contains_the_job_and_its_outcome_and_no_payload(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """SEC-32."""
    webhook = await subscribe(engine, events=ENDINGS)
    job = await fail(engine, worker, payload={"password": "canary"}, queue="mail", code="E_NO")
    await engine.webhooks.fan_out()
    [delivery] = await sent_to(engine, webhook)
    assert msgspec.json.decode(delivery.body) == {
        "type": "job.failed",
        "timestamp": clock.now().isoformat().replace("+00:00", "Z"),
        "data": {
            "jobId": job,
            "jobType": "T",
            "queue": "mail",
            "status": "FAILED",
            "state": "dead",
            "seq": 3,
            "error": "E_NO",
        },
    }


async def test_a_message_contains_the_status_name_of_the_lifecycle(engine: Engine, worker: str) -> None:
    webhook = await subscribe(engine)
    await bring(engine, worker, ORCHESTRATION, State.SUCCEEDED)
    await engine.webhooks.fan_out()
    said = [msgspec.json.decode(delivery.body)["data"] for delivery in await sent_to(engine, webhook)]
    assert [(each["status"], each["state"]) for each in said] == [
        *(("PENDING", "CREATED"), ("RUNNING", "RUNNING"), ("COMPLETED", "SUCCESS")),
    ]


async def test_every_final_state_has_an_event_type(engine: Engine, worker: str) -> None:
    webhook = await subscribe(engine, events=ENDINGS)
    await complete(engine, worker)
    await fail(engine, worker)
    await engine.cancel(await create(engine), reason="said in confidence")
    lease = await run(engine, worker)
    await engine.reject(worker, lease.id, lease.token, "E_POLICY")
    assert await told(engine, webhook) == ["job.completed", "job.failed", "job.canceled", "job.rejected"]
    assert "confidence" not in repr(await sent_to(engine, webhook))


async def test_webhooks_filter_by_event_type_and_queue(engine: Engine, worker: str) -> None:
    ends = await subscribe(engine, events=("job.completed",))
    typed = await subscribe(engine, job_types=["A", "B"], events=("job.created",))
    queued = await subscribe(engine, queues=["mail"], events=("job.created",))
    await complete(engine, worker, type="A")
    await create(engine, type="B", queue="mail")
    await create(engine, type="C", queue="mail")
    await engine.webhooks.fan_out()
    counts = [len(await sent_to(engine, webhook)) for webhook in (ends, typed, queued)]
    assert counts == [1, 2, 2]


async def test_a_tenant_receives_events_of_its_own_jobs_only(engine: Engine) -> None:
    ours, theirs = await subscribe(engine, tenant="a"), await subscribe(engine, tenant="b")
    await create(engine, tenant="a")
    await engine.webhooks.fan_out()
    assert [len(await sent_to(engine, webhook)) for webhook in (ours, theirs)] == [1, 0]


async def test_events_before_the_webhook_are_not_delivered(engine: Engine, clock: MovableClock) -> None:
    await subscribe(engine)
    await create(engine)
    clock.advance(1)
    late = await subscribe(engine)
    assert await told(engine, late) == []
    await create(engine)
    assert await told(engine, late) == ["job.created"]


async def test_a_webhook_created_before_any_deliverer_runs_misses_no_event(engine: Engine) -> None:
    await create(engine)
    webhook = await subscribe(engine)
    await create(engine)
    assert await told(engine, webhook) == ["job.created"]


async def test_a_disabled_webhook_gets_no_events_and_none_afterwards(engine: Engine) -> None:
    webhook = await subscribe(engine)
    other = await subscribe(engine)
    await engine.webhooks.change(webhook, enabled=False)
    await create(engine)
    assert len(await told(engine, other)) == 1
    await engine.webhooks.change(webhook, enabled=True)
    assert await told(engine, webhook) == []
    await create(engine)
    assert len(await told(engine, webhook)) == 1


async def test_without_webhooks_the_reader_skips_to_the_end_of_the_log(engine: Engine) -> None:
    for _ in range(3):
        await create(engine)
    first = await engine.webhooks.fan_out()
    assert (first.listening, first.full, first.made) == (False, False, 0)
    await create(engine)
    await engine.webhooks.fan_out()
    [reader] = await ask(engine, "SELECT pos, job_id, seq FROM holdfast_readers WHERE name = 'webhooks'")
    end = await engine.reads.feed_end()
    assert (reader["pos"], reader["job_id"], reader["seq"]) == (end.pos, end.job_id, end.seq)
    assert await ask(engine, "SELECT id FROM holdfast_deliveries") == []


async def test_a_webhook_created_while_the_reader_skips_ahead_misses_no_event(engine: Engine) -> None:
    """Between the look and the leap to the end."""
    await engine.webhooks.fan_out()
    webhook = await subscribe(engine)
    await create(engine)
    late = await engine.store.write(skip)
    assert (late.listening, late.full) == (True, True)
    assert await told(engine, webhook) == ["job.created"]


async def test_a_webhook_created_while_a_page_is_read_misses_no_event(engine: Engine) -> None:
    """Webhooks are looked up after the page: each that was there before an event is seen."""
    await subscribe(engine)
    await create(engine)
    asked: list[str] = []

    async def watched(tx: Any) -> Any:
        all_of = tx.all

        async def noting(query: Query, **params: Any) -> Any:
            asked.append(query.name)
            return await all_of(query, **params)

        tx.all = noting
        return await fan_out(tx, engine.ctx, AlertRules())

    await engine.store.write(watched)
    assert asked.index("feed") < asked.index("webhooks")


async def test_the_position_of_another_reader_is_not_changed(engine: Engine) -> None:
    await subscribe(engine)
    other = "SELECT 'other', 0, job_id, 0, read_at FROM holdfast_readers"
    await ask(engine, f"INSERT INTO holdfast_readers (name, pos, job_id, seq, read_at) {other} RETURNING name")
    await create(engine)
    assert (await engine.webhooks.fan_out()).made == 1
    [row] = await ask(engine, "SELECT pos FROM holdfast_readers WHERE name = 'other'")
    assert row["pos"] == 0


async def test_another_reader_ahead_of_the_log_does_not_affect_webhooks(engine: Engine, clock: MovableClock) -> None:
    ahead = "(name, pos, job_id, seq, read_at) VALUES ('ahead', 1000000000, :id, 0, :at) RETURNING name"
    await ask(engine, f"INSERT INTO holdfast_readers {ahead}", id=UNKNOWN_ID, at=clock.now())
    await subscribe(engine)
    await create(engine)
    assert (await engine.webhooks.fan_out()).made == 1


async def test_only_jobs_of_the_current_page_are_read(engine: Engine) -> None:
    job, _ = await create(engine), await create(engine)
    [row] = await engine.store.read(lambda tx: tx.all(q.webhook_jobs, ids=[job]))
    assert row["id"] == job


async def test_pruned_events_do_not_move_the_reader_backwards(engine: Engine, worker: str) -> None:
    webhook = await subscribe(engine, events=("job.completed",))
    await complete(engine, worker, type="A")
    await create(engine, type="B")
    assert len(await told(engine, webhook)) == 1
    await engine.webhooks.change(webhook, enabled=False)
    await ask(engine, "DELETE FROM holdfast_events WHERE pos = (SELECT max(pos) FROM holdfast_events) RETURNING job_id")
    await engine.webhooks.fan_out()
    await engine.webhooks.change(webhook, enabled=True)
    assert (await engine.webhooks.fan_out()).made == 0
    assert len(await sent_to(engine, webhook)) == 1


async def test_a_page_is_full_when_there_may_be_more(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.webhooks.fan_out.PAGE", 2)
    monkeypatch.setattr("holdfast.engine.webhooks.fan_out.BATCH", 1)
    webhook = await subscribe(engine)
    for _ in range(3):
        await create(engine)
    assert (await engine.webhooks.fan_out()).full
    assert not (await engine.webhooks.fan_out()).full
    assert len(await sent_to(engine, webhook)) == 3


async def test_reading_the_log_twice_creates_each_message_once(engine: Engine) -> None:
    webhook, other = await subscribe(engine), await subscribe(engine)
    await create(engine)
    await engine.webhooks.fan_out()
    await ask(engine, "UPDATE holdfast_readers SET pos = 0 WHERE name = 'webhooks' RETURNING name")
    await engine.webhooks.fan_out()
    assert [len(await sent_to(engine, each)) for each in (webhook, other)] == [1, 1]


async def test_concurrent_writers_cause_no_lost_or_duplicate_events(engine: Engine) -> None:
    webhook = await subscribe(engine, events=("job.created",))
    made: list[str] = []
    writing = True

    async def write() -> None:
        for _ in range(15):
            made.extend(job.id for job in await engine.create_many([NewJob(type="T") for _ in range(3)]))

    async def read() -> None:
        while writing:
            await engine.webhooks.fan_out()

    readers = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.gather(*(write() for _ in range(4)))
    writing = False
    await asyncio.gather(*readers)
    await engine.webhooks.fan_out()
    delivered = Counter(row["job_id"] for row in await ask(engine, "SELECT job_id FROM holdfast_deliveries"))
    assert delivered == Counter(made)
    assert len(made) == 180
    assert webhook


async def test_the_reader_waits_for_a_transaction_that_commits_late(fresh_postgres_url: str) -> None:
    """DESIGN 4, trap (d)."""
    engine = Engine(await open_store(fresh_postgres_url, Clock(), SeededIds(7)))
    caller = await asyncpg.connect(fresh_postgres_url)
    try:
        await create(engine)  # its lane is there then, and nobody waits for anybody
        webhook = await subscribe(engine, events=("job.created",))
        opened = caller.transaction()
        await opened.start()
        late = (await engine.create(NewJob(type="T"), connection=caller)).id
        early = await create(engine)
        await engine.webhooks.fan_out()
        await opened.commit()
        await engine.webhooks.fan_out()
        assert {delivery.job_id for delivery in await sent_to(engine, webhook)} == {late, early}
    finally:
        await caller.close()
        await engine.close()


async def test_a_server_does_not_wait_while_another_reads_the_log(fresh_postgres_url: str) -> None:
    engine = Engine(await open_store(fresh_postgres_url, Clock(), SeededIds(7)))
    other = await asyncpg.connect(fresh_postgres_url)
    try:
        await subscribe(engine)
        await create(engine)
        async with other.transaction():
            await other.execute("SELECT 1 FROM holdfast_readers WHERE name = 'webhooks' FOR UPDATE")
            async with asyncio.timeout(60):
                assert (await engine.webhooks.fan_out()).made == 0
        assert (await engine.webhooks.fan_out()).made == 1
    finally:
        await other.close()
        await engine.close()


async def test_the_log_is_read_for_alerts_without_webhooks(engine: Engine) -> None:
    watch = AlertRules(frozenset({"worker_startup"}))
    assert (await engine.webhooks.fan_out(watch)).listening
    assert (await engine.webhooks.fan_out(watch)).listening
