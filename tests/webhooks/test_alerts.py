"""003's alerts: what raises them, how often they are told, and in whose form (R003-78, 82, 89, 124..132)."""

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.assembly.server import open_deliverer
from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.reads.missing_extensions import MISSING_SECONDS
from holdfast.engine.webhooks.alerts import KINDS, MAILBOX, PATTERN_FAILURES, PATTERN_SECONDS, AlertRules
from holdfast.errors import UnknownName
from holdfast.model import NewJob
from holdfast.settings import Settings
from holdfast.webhooks.alerts import AlertSettings, formatted, kinds_of
from holdfast.webhooks.deliverer import WebhookDeliverer
from holdfast.webhooks.egress import Egress
from holdfast.webhooks.sender import WebhookSender
from tests.engine.hooking import adopt, effect
from tests.engine.steps import ask, run, sweep
from tests.webhooks.conftest import Couriers
from tests.webhooks.receiver import Got, Receiver, answer
from tests.webhooks.steps import complete, deliver, fail, subscribe

ALL = frozenset(KINDS)


@pytest.fixture
async def alarm(couriers: Couriers, receiver: Receiver) -> WebhookDeliverer:
    """A courier that brings every kind of alert to the receiver."""
    courier = couriers(alerts=AlertSettings(url=receiver.url, kinds=ALL))
    await courier.fan_out()  # from now on
    return courier


def told(receiver: Receiver) -> list[Any]:
    return [got.said for got in receiver.got]


def kinds(receiver: Receiver) -> list[str]:
    return sorted(said["alert"] for said in told(receiver))


async def say_worker(engine: Engine, worker: str, seq: int, status: str, was: str | None, name: str = "w1") -> None:
    """As the log of workers has it."""
    data = msgspec.json.encode({"name": name, "was": was}).decode()
    now = "{now}"
    await ask(
        engine,
        "INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, attempt, epoch, actor, reason, data)"
        f" VALUES (:id, :seq, '*', {now}, 'worker', 0, 0, 'system', :reason, :data) RETURNING seq",
        id=worker,
        seq=seq,
        reason=status,
        data=data,
    )


async def test_a_lost_lease_raises_an_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str, clock: MovableClock
) -> None:
    """R003-89, R003-124."""
    lease = await run(engine, worker, type="T")
    await sweep(engine, clock, 40)
    await deliver(alarm)
    [said] = told(receiver)
    assert said["message"] == f"T job {lease.id} was taken from its worker (lease_expired); it will be retried"
    assert (said["alert"], said["jobId"], said["jobType"]) == ("stale_job_recovered", lease.id, "T")
    assert (said["count"], said["attempt"], said["error"]) == (1, 1, "lease_expired")


async def test_the_failure_of_the_last_attempt_raises_an_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    """R003-78, R003-125."""
    job = await fail(engine, worker, max_attempts=1, permanent=False, payload={"password": "canary"})
    await deliver(alarm)
    [said] = told(receiver)
    assert said["message"] == f"T job {job} has used up its 1 attempts: E_X"
    assert "canary" not in repr(receiver.got)


async def test_a_permanent_error_and_a_failure_with_attempts_left_raise_no_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    await fail(engine, worker, permanent=True)
    await fail(engine, worker, permanent=False)
    await deliver(alarm)
    assert told(receiver) == []


async def test_a_job_that_dies_of_a_lost_lease_raises_two_alerts(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str, clock: MovableClock
) -> None:
    await run(engine, worker, type="T", max_attempts=1)
    await sweep(engine, clock, 40)
    await deliver(alarm)
    assert kinds(receiver) == ["job_max_retries_exceeded", "stale_job_recovered"]
    assert any("it is dead now" in said["message"] for said in told(receiver))


async def test_repeated_failures_of_a_job_type_raise_an_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    """R003-82, R003-126."""
    for _ in range(PATTERN_FAILURES - 1):
        await fail(engine, worker)
        await fail(engine, worker, type="other", tenant="other")
        await deliver(alarm)
    await complete(engine, worker, type="other", tenant="other")
    await fail(engine, worker, type="other", tenant="other")
    await fail(engine, worker, type="other")
    await deliver(alarm)
    assert told(receiver) == []
    await fail(engine, worker)
    await deliver(alarm)
    [said] = told(receiver)
    assert said["alert"] == "job_failed_pattern"
    assert said["message"].startswith("T jobs failed 5 times within 10 minutes")


async def test_repeated_failures_of_a_subject_raise_an_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    """R003-126: whatever the types of the jobs; neither other subjects nor jobs without one count."""
    for n in range(PATTERN_FAILURES - 1):
        await fail(engine, worker, subject="video 7", type=f"T{n % 2}")
        await fail(engine, worker, subject="video 8")
        await fail(engine, worker)
    await complete(engine, worker, subject="video 8")
    await fail(engine, worker, subject="video 8")
    await complete(engine, worker, type="T0")  # of no subject
    await fail(engine, worker, subject="video 7", tenant="other")
    await deliver(alarm)
    assert told(receiver) == []
    await fail(engine, worker, subject="video 7", type="T0")
    await deliver(alarm)
    [said] = told(receiver)
    assert (said["alert"], said["subject"]) == ("job_failed_pattern", "video 7")
    assert said["message"].startswith("jobs about 'video 7' failed 5 times within 10 minutes")


async def test_failures_far_apart_raise_no_pattern_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str, clock: MovableClock
) -> None:
    for _ in range(PATTERN_FAILURES + 2):
        await fail(engine, worker)
        await deliver(alarm)
        clock.advance(PATTERN_SECONDS / (PATTERN_FAILURES - 1))
    assert told(receiver) == []


async def test_a_pattern_within_one_page_of_the_log_raises_an_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    for _ in range(2 * PATTERN_FAILURES):
        await fail(engine, worker)
    await deliver(alarm)
    [said] = told(receiver)
    assert said["count"] == 2


async def test_workers_that_start_and_stop_raise_alerts(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    """R003-127, R003-128."""
    for seq, (status, was) in enumerate([("online", None), ("busy", "online"), ("idle", "busy"), ("offline", "idle")]):
        await say_worker(engine, worker, seq + 1, status, was)
    await deliver(alarm)
    assert sorted(said["message"] for said in told(receiver)) == ["worker w1 has started", "worker w1 is offline"]
    assert {said["workerId"] for said in told(receiver)} == {worker}


async def test_a_real_worker_process_raises_alerts(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, clock: MovableClock
) -> None:
    worker = await engine.workers.register(name="encoder-1")
    await engine.maintenance.record_worker_events()
    await deliver(alarm)
    await engine.maintenance.reap()
    for _ in range(15):
        clock.advance(10)
        await engine.maintenance.reap()
        await engine.maintenance.mark_silent_workers()
    await engine.maintenance.record_worker_events()
    await deliver(alarm)
    assert [said["message"] for said in told(receiver)] == [
        *("worker encoder-1 has started", "worker encoder-1 is offline"),
    ]
    assert told(receiver)[0]["workerId"] == worker.id


async def test_disabling_a_worker_raises_no_alert(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    for seq, (status, was) in enumerate([("disabled", None), ("offline", "offline"), ("disabled", "offline")]):
        await say_worker(engine, worker, seq + 1, status, was)
    await deliver(alarm)
    assert told(receiver) == []


async def test_one_alert_of_each_kind_is_sent_per_cooldown_with_the_number_of_others(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str, clock: MovableClock
) -> None:
    """R003-130."""

    async def spend(times: int) -> None:
        for _ in range(times):
            await fail(engine, worker, max_attempts=1, type=f"T{engine.ctx.ids.bits(32)}")
            await deliver(alarm)

    await spend(3)
    assert [said["count"] for said in told(receiver)] == [1]
    clock.advance(299)
    await spend(1)
    assert len(receiver.got) == 1
    await run(engine, worker, type="lost")
    clock.advance(1)
    await spend(1)
    assert [said["count"] for said in told(receiver)] == [1, 4]
    assert told(receiver)[1]["message"].endswith("(4 of these since the last alert)")
    await sweep(engine, clock, 40)
    await deliver(alarm)
    assert told(receiver)[2]["alert"] == "stale_job_recovered", "another kind has its own cooldown"


async def test_all_servers_share_the_cooldown(
    engine: Engine, couriers: Couriers, receiver: Receiver, worker: str
) -> None:
    """R003-130."""
    servers = [couriers(alerts=AlertSettings(url=receiver.url, kinds=ALL)) for _ in range(2)]
    await servers[0].fan_out()
    for server in servers:
        await fail(engine, worker, max_attempts=1)
        await deliver(server)
    assert len(receiver.got) == 1


async def test_only_enabled_kinds_of_alerts_are_sent(
    engine: Engine, couriers: Couriers, receiver: Receiver, worker: str
) -> None:
    courier = couriers(alerts=AlertSettings(url=receiver.url, kinds=frozenset({"stale_job_recovered"})))
    await courier.fan_out()
    await fail(engine, worker, max_attempts=1)
    await deliver(courier)
    assert told(receiver) == []


async def test_without_an_alert_url_no_alerts_are_sent(engine: Engine, couriers: Couriers, worker: str) -> None:
    """R003-129: empty is off."""
    courier = couriers(alerts=AlertSettings(kinds=ALL))
    assert not await courier.fan_out()
    await fail(engine, worker, max_attempts=1)
    assert await deliver(courier) == 0
    assert await ask(engine, "SELECT id FROM holdfast_deliveries") == []


async def test_an_alert_request_times_out_after_ten_seconds(
    engine: Engine, receiver: Receiver, worker: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R003-131: by the settings, and no longer than they say."""
    waited: list[float] = []
    send = WebhookSender.send

    async def noted(sender: WebhookSender, target: Any, headers: Any, body: bytes, seconds: float) -> Any:
        waited.append(seconds)
        return await send(sender, target, headers, body, 0.2)  # ten of them would be long for a test

    monkeypatch.setattr(WebhookSender, "send", noted)
    receiver.otherwise = never
    settings = Settings(alert_webhook_url=receiver.url, unsafe_private_webhooks=True)
    courier = open_deliverer(engine, clock, engine.ctx.ids, settings)
    await courier.fan_out()
    await fail(engine, worker, max_attempts=1)
    assert await deliver(courier) == 1
    assert (waited, len(receiver.got)) == ([10], 1)
    [delivery] = await ask(engine, "SELECT state, tries, log FROM holdfast_deliveries")
    assert (delivery["state"], delivery["tries"]) == ("pending", 1), "it is sent again"
    assert "0.2 s" in delivery["log"]
    await courier.close()


async def never(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_an_alert_is_retried_until_it_is_accepted(
    engine: Engine,
    alarm: WebhookDeliverer,
    receiver: Receiver,
    worker: str,
    clock: MovableClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver.answers = [answer(500)]
    await fail(engine, worker, max_attempts=1)
    await deliver(alarm)
    assert "alert job_max_retries_exceeded was not delivered: 500" in caplog.text
    clock.advance(10)
    await deliver(alarm)
    assert len(receiver.got) == 2
    assert receiver.got[0].id == receiver.got[1].id
    assert "webhook-signature" not in receiver.got[0].headers


async def test_alerts_and_webhooks_are_delivered_independently(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, worker: str
) -> None:
    await subscribe(engine, receiver.url, events=("job.failed",))
    await fail(engine, worker, max_attempts=1)
    assert await deliver(alarm) == 2
    assert sorted(next(iter(said)) for said in told(receiver)) == ["alert", "type"]


async def test_a_server_without_a_url_leaves_alerts_to_those_that_have_one(
    engine: Engine, alarm: WebhookDeliverer, couriers: Couriers, receiver: Receiver, worker: str
) -> None:
    await fail(engine, worker, max_attempts=1)
    await alarm.fan_out()
    assert await couriers().start_deliveries() == 0
    assert await engine.webhooks.with_work(alerts=True) == [MAILBOX["job_max_retries_exceeded"]]


async def test_the_memory_of_failures_is_bounded(
    engine: Engine, worker: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.webhooks.alerts.REMEMBERED_MAX", 3)
    await engine.webhooks.fan_out(AlertRules(ALL))
    for number in range(6):
        await fail(engine, worker, type=f"T{number}")
        await engine.webhooks.fan_out(AlertRules(ALL))
    [row] = await ask(engine, "SELECT memory FROM holdfast_alerts")
    assert len(msgspec.json.decode(row["memory"])) <= 4


# -- forms --------------------------------------------------------------------------------------------------------

SAID = msgspec.json.encode({"alert": "worker_startup", "message": "worker <a> & @everyone", "count": 1}).decode()


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", {"text": "worker &lt;a&gt; &amp; @everyone"}),
        ("https://chat.example.com/hooks/x/slack", {"text": "worker &lt;a&gt; &amp; @everyone"}),
        (
            "https://discord.com/api/webhooks/1/x",
            {"content": "worker <a> & @everyone", "allowed_mentions": {"parse": []}},
        ),
        ("https://discord.com/api/webhooks/1/x/slack", {"text": "worker &lt;a&gt; &amp; @everyone"}),
        ("https://example.com/alerts", msgspec.json.decode(SAID)),
    ],
)
def test_an_alert_has_the_format_of_its_receiver(url: str, form: dict[str, Any]) -> None:
    """R003-129."""
    assert msgspec.json.decode(formatted(SAID, Egress().check(url))) == form


def test_the_setting_lists_kinds_of_alerts_by_name() -> None:
    assert kinds_of(" worker_startup, worker_shutdown ,") == {"worker_startup", "worker_shutdown"}
    assert kinds_of("") == frozenset()
    with pytest.raises(UnknownName, match="did you mean 'worker_startup'"):
        kinds_of("worker_start_up")


async def test_a_missing_extension_raises_one_alert_per_cooldown(
    engine: Engine, alarm: WebhookDeliverer, receiver: Receiver, clock: MovableClock
) -> None:
    @effect(engine, "complete")
    async def follow(*_: Any) -> None: ...

    await adopt(engine, "n")
    await alarm.check_extensions()
    await engine.create(NewJob(type="n"))
    for _ in range(2):
        clock.advance(15)
        await alarm.check_extensions()
    await deliver(alarm)
    [said] = told(receiver)
    assert (said["alert"], said["extensions"]) == ("extension_missing", {"toy": 1})
    assert said["message"] == "no live process has extension toy, which 1 job needs"
    clock.advance(300)
    await alarm.check_extensions()
    await deliver(alarm)
    assert kinds(receiver) == ["extension_missing"] * 2
    await engine.maintenance.extension_tasks([])
    clock.advance(0.9 * MISSING_SECONDS)
    await ask(engine, "UPDATE holdfast_alerts SET sent_at = {now-1000} RETURNING kind")
    await alarm.check_extensions()
    assert await deliver(alarm) == 0


async def test_missing_extensions_are_not_queried_when_their_alert_is_disabled(
    engine: Engine, couriers: Couriers, receiver: Receiver
) -> None:
    @effect(engine, "complete")
    async def follow(*_: Any) -> None: ...

    await adopt(engine, "n")
    await engine.create(NewJob(type="n"))
    courier = couriers(alerts=AlertSettings(url=receiver.url, kinds=ALL - {"extension_missing"}))
    await courier.check_extensions()
    assert await deliver(courier) == 0
