"""Hints: a waiting process learns soon that there may be work, across processes, at low cost."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.store import PostgresStore, open_store
from holdfast.store.notify import (
    CHANNEL,
    PAUSE_LONE_SECONDS,
    PAUSE_SECONDS,
    Notifier,
    WakeSignal,
    hint_sender,
    queue_waker,
)
from holdfast.store.presence import Presence, open_presence
from tests.servers.postgres import running
from tests.worker.in_process import until

LONG, SHORT = 30.0, 0.2


@pytest.fixture
async def waking_engine(store_url: str) -> AsyncIterator[Engine]:
    """An engine that wakes other processes."""
    engine = Engine(await open_store(store_url))
    sender = hint_sender(engine.store, Clock())
    engine.ctx.wakers.append(queue_waker(sender))
    yield engine
    await sender.close()
    await engine.close()


@pytest.fixture
async def presence(store_url: str, waking_engine: Engine) -> AsyncIterator[Presence]:
    presence = await open_presence(store_url)
    yield presence
    await presence.close()


async def assert_hints_end(presence: Presence) -> None:
    for _ in range(10):
        if not await presence.wait(SHORT):
            return
    pytest.fail("hints keep coming")


# -- waiting ----------------------------------------------------------------------------------------------------------


async def test_a_waiting_process_gets_a_hint_for_a_new_job(waking_engine: Engine, presence: Presence) -> None:
    waiting = asyncio.create_task(presence.wait(LONG))
    await waking_engine.create(NewJob(type="echo"))
    assert await waiting


async def test_a_hint_is_kept_until_the_next_wait_and_then_consumed(waking_engine: Engine, presence: Presence) -> None:
    await waking_engine.create(NewJob(type="echo"))
    assert await presence.wait(LONG)
    await assert_hints_end(presence)  # one job may be heard of twice, not for ever


async def test_a_wait_without_a_hint_times_out(presence: Presence) -> None:
    assert not await presence.wait(SHORT)


async def test_polling_and_empty_claims_send_no_hint(waking_engine: Engine, presence: Presence) -> None:
    """Otherwise two idle workers would keep waking each other."""
    worker = (await waking_engine.workers.register()).id
    await waking_engine.claim(worker)
    await assert_hints_end(presence)
    for _ in range(3):
        assert await waking_engine.claim(worker) == []
        await waking_engine.polls.poll(worker)
    assert not await presence.wait(SHORT)


async def test_a_commit_of_another_process_on_the_sqlite_file_is_a_hint(fresh_sqlite_url: str) -> None:
    """Also one that sends no hint: the file shows that another process has written."""
    await (await open_store(fresh_sqlite_url)).close()
    presence = await open_presence(fresh_sqlite_url)
    waiting = asyncio.create_task(presence.wait(LONG))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.concurrent_process", fresh_sqlite_url, "1"),
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await waiting
    await process.wait()
    await presence.close()


async def test_a_wake_signal_for_some_queues_ignores_others() -> None:
    signal = WakeSignal(["mail", "video"])
    signal.wake({"images"})
    assert not await signal.wait(SHORT)
    signal.wake({"images", "mail"})
    assert await signal.wait(LONG)
    signal.wake()  # any
    assert await signal.wait(LONG)


async def test_a_wake_signal_can_be_set_from_another_thread() -> None:
    signal = WakeSignal()
    waiting = asyncio.create_task(signal.wait(LONG))
    await asyncio.sleep(0)
    thread = threading.Thread(target=signal.wake, args=({"default"},))
    thread.start()
    assert await waiting
    thread.join()


def test_a_wake_signal_whose_event_loop_has_ended_raises_nothing() -> None:
    async def make() -> WakeSignal:
        return WakeSignal()

    asyncio.run(make()).wake({"default"})


# -- sending ----------------------------------------------------------------------------------------------------------


class RecordedNotifications:
    """The notifications on the channel, and a store that sends them."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.payloads: list[str] = []
        self.senders: list[int] = []

    def hear(self, *said: Any) -> None:
        self.senders.append(said[1])
        self.payloads.append(said[-1])

    async def queues(self, number: int) -> list[list[str]]:
        """The queues of so many notifications, once they have arrived."""
        async with asyncio.timeout(LONG):
            while True:
                if len(self.payloads) >= number:
                    return [json.loads(payload) for payload in self.payloads]
                await asyncio.sleep(0.01)


@pytest.fixture
async def notifications(fresh_postgres_url: str) -> AsyncIterator[RecordedNotifications]:
    store = await open_store(fresh_postgres_url)
    assert isinstance(store, PostgresStore)
    notifications = RecordedNotifications(store)
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.add_listener(CHANNEL, notifications.hear)
    yield notifications
    await connection.close()
    await store.close()


async def test_the_first_notification_is_sent_immediately_and_later_ones_are_combined(
    notifications: RecordedNotifications,
) -> None:
    """K32: few notifications for many commits; every queue is named."""
    notifier = Notifier(notifications.store, Clock())
    notifier({"first"})
    await asyncio.sleep(0)
    for number in range(1000):
        notifier({f"q{number % 20}"})
    await notifier.close()
    said = await notifications.queues(2)
    assert said == [["first"], sorted(f"q{number}" for number in range(20))]


class RecordedPauses(Clock):
    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(seconds)


async def test_commits_that_follow_each_other_are_told_of_sooner_than_commits_that_come_together(
    notifications: RecordedNotifications,
) -> None:
    """A caller that waits for each of its jobs must not wait for the pause that many callers need."""
    clock = RecordedPauses()
    notifier = Notifier(notifications.store, clock)
    for number in range(3):
        notifier({f"q{number}"})
        await notifier.flush()
    assert clock.pauses == [PAUSE_LONE_SECONDS] * 3
    notifier({"first"})
    await asyncio.sleep(0)
    for number in range(5):
        notifier({f"q{number}"})
    await notifier.close()
    assert clock.pauses[3] == PAUSE_LONE_SECONDS < PAUSE_SECONDS <= clock.pauses[4]


async def test_close_sends_pending_notifications(notifications: RecordedNotifications) -> None:
    notifier = Notifier(notifications.store, Clock())
    notifier({"last"})
    await notifier.close()
    assert await notifications.queues(1) == [["last"]]


async def test_too_many_queue_names_are_sent_as_all_queues(
    notifications: RecordedNotifications, fresh_postgres_url: str
) -> None:
    presence = await open_presence(fresh_postgres_url, queues=["mine"])
    notifier = Notifier(notifications.store, Clock())
    notifier({f"{number:0190}" for number in range(50)})
    assert await presence.wait(LONG)
    await until(lambda: notifications.payloads == ["*"])
    notifier({"another"})
    assert not await presence.wait(SHORT)
    await notifier.close()
    await presence.close()


async def test_queue_names_with_quotes_and_non_ascii_letters_are_sent(
    notifications: RecordedNotifications, fresh_postgres_url: str
) -> None:
    queues = {"it's", "back\\slash", "grüße", "x" * 200}
    presence = await open_presence(fresh_postgres_url, queues=["grüße"])
    notifier = Notifier(notifications.store, Clock())
    notifier(queues)
    assert await notifications.queues(1) == [sorted(queues)]
    assert await presence.wait(LONG)
    await notifier.close()
    await presence.close()


@pytest.mark.parametrize("payload", ["", "not ours", "7", '{"a": 1}'])
async def test_a_foreign_payload_on_the_channel_counts_as_a_hint(fresh_postgres_url: str, payload: str) -> None:
    presence = await open_presence(fresh_postgres_url, queues=["mine"])
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
    assert await presence.wait(LONG)
    await connection.close()
    await presence.close()


async def test_a_callers_transaction_sends_no_notification(
    notifications: RecordedNotifications, fresh_postgres_url: str
) -> None:
    """K32: a NOTIFY in that transaction would block other commits. It is sent later, on another connection."""
    engine = Engine(notifications.store)
    notifier = Notifier(notifications.store, Clock())
    engine.ctx.wakers.append(queue_waker(notifier))
    connection = await asyncpg.connect(fresh_postgres_url)
    async with connection.transaction():
        await engine.create(NewJob(type="echo"), connection=connection)
    callers = connection.get_server_pid()
    await connection.close()
    assert await notifications.queues(2) == [["default"]] * 2
    await notifier.close()
    assert callers not in notifications.senders


@pytest.mark.slow
@pytest.mark.postgres
async def test_an_outage_loses_only_the_hints_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with running() as server:
        store = await PostgresStore.open(server.dsn(), Clock(), Ids())
        notifier = Notifier(store, Clock())
        server.stop()
        for number in range(3):
            notifier({f"q{number}"})
            await notifier.flush()
        assert caplog.text.count("cannot wake other processes") == 1
        server.start()
        notifier({"again"})
        await notifier.flush()
        caplog.clear()
        server.stop()
        notifier({"and again"})
        await notifier.flush()
        assert caplog.text.count("cannot wake other processes") == 1
        await store.close()
