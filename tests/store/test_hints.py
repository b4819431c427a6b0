"""Hints: whoever waits hears soon that there may be work, across processes, and nobody pays much for it."""

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
from holdfast.store.notify import CHANNEL, Notifier, WakeSignal, queue_waker
from holdfast.store.presence import Presence, open_presence
from tests.servers.postgres import running
from tests.worker.in_process import until

LONG, SHORT = 30.0, 0.2


@pytest.fixture
async def teller(store_url: str) -> AsyncIterator[Engine]:
    """An engine that wakes other processes: on SQLite its commits do, on PostgreSQL it says so."""
    engine = Engine(await open_store(store_url))
    notifier = Notifier(engine.store, Clock()) if isinstance(engine.store, PostgresStore) else None
    if notifier:
        engine.ctx.wakers.append(queue_waker(notifier))
    yield engine
    if notifier:
        await notifier.close()
    await engine.close()


@pytest.fixture
async def presence(store_url: str, teller: Engine) -> AsyncIterator[Presence]:
    presence = await open_presence(store_url)
    yield presence
    await presence.close()


async def falls_silent(presence: Presence) -> None:
    for _ in range(10):
        if not await presence.wait(SHORT):
            return
    pytest.fail("there is no end to it")


# -- waiting ----------------------------------------------------------------------------------------------------------


async def test_whoever_waits_hears_of_a_new_job(teller: Engine, presence: Presence) -> None:
    waiting = asyncio.create_task(presence.wait(LONG))
    await teller.create(NewJob(type="echo"))
    assert await waiting


async def test_a_hint_is_kept_until_somebody_waits_and_then_it_is_used_up(teller: Engine, presence: Presence) -> None:
    await teller.create(NewJob(type="echo"))
    assert await presence.wait(LONG)
    await falls_silent(presence)  # one job may be heard of twice, not for ever


async def test_without_a_hint_the_time_runs_out(presence: Presence) -> None:
    assert not await presence.wait(SHORT)


async def test_to_look_for_work_wakes_nobody(teller: Engine, presence: Presence) -> None:
    """Else two idle workers would keep each other awake."""
    worker = (await teller.workers.register()).id
    await teller.claim(worker)
    await falls_silent(presence)
    for _ in range(3):
        assert await teller.claim(worker) == []
        await teller.polls.poll(worker)
    assert not await presence.wait(SHORT)


async def test_a_job_of_another_process_is_heard_of(fresh_sqlite_url: str) -> None:
    """On SQLite nobody tells: the file itself shows that somebody has written."""
    await (await open_store(fresh_sqlite_url)).close()
    presence = await open_presence(fresh_sqlite_url)
    waiting = asyncio.create_task(presence.wait(LONG))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.crowd", fresh_sqlite_url, "1"), stdout=asyncio.subprocess.DEVNULL
    )
    assert await waiting
    await process.wait()
    await presence.close()


async def test_an_ear_for_some_queues_does_not_hear_of_others() -> None:
    signal = WakeSignal(["mail", "video"])
    signal.wake({"images"})
    assert not await signal.wait(SHORT)
    signal.wake({"images", "mail"})
    assert await signal.wait(LONG)
    signal.wake()  # any
    assert await signal.wait(LONG)


async def test_an_ear_hears_from_other_threads() -> None:
    signal = WakeSignal()
    waiting = asyncio.create_task(signal.wait(LONG))
    await asyncio.sleep(0)
    thread = threading.Thread(target=signal.wake, args=({"default"},))
    thread.start()
    assert await waiting
    thread.join()


def test_an_ear_whose_loop_has_ended_is_deaf_and_nothing_worse() -> None:
    async def make() -> WakeSignal:
        return WakeSignal()

    asyncio.run(make()).wake({"default"})


# -- telling ----------------------------------------------------------------------------------------------------------


class Notices:
    """What is said on the channel, and a store to say it with."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.payloads: list[str] = []
        self.senders: list[int] = []

    def hear(self, *said: Any) -> None:
        self.senders.append(said[1])
        self.payloads.append(said[-1])

    async def queues(self, number: int) -> list[list[str]]:
        """Of that many notices, once they are here."""
        async with asyncio.timeout(LONG):
            while True:
                if len(self.payloads) >= number:
                    return [json.loads(payload) for payload in self.payloads]
                await asyncio.sleep(0.01)


@pytest.fixture
async def notices(fresh_postgres_url: str) -> AsyncIterator[Notices]:
    store = await open_store(fresh_postgres_url)
    assert isinstance(store, PostgresStore)
    notices = Notices(store)
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.add_listener(CHANNEL, notices.hear)
    yield notices
    await connection.close()
    await store.close()


async def test_the_first_goes_at_once_and_the_rest_together(notices: Notices) -> None:
    """K32: however many commits, few notices; but every queue is named."""
    notifier = Notifier(notices.store, Clock())
    notifier({"first"})
    await asyncio.sleep(0)
    for number in range(1000):
        notifier({f"q{number % 20}"})
    await notifier.close()
    said = await notices.queues(2)
    assert said == [["first"], sorted(f"q{number}" for number in range(20))]


async def test_what_waits_is_sent_before_the_end(notices: Notices) -> None:
    notifier = Notifier(notices.store, Clock())
    notifier({"last"})
    await notifier.close()
    assert await notices.queues(1) == [["last"]]


async def test_too_many_names_mean_all(notices: Notices, fresh_postgres_url: str) -> None:
    presence = await open_presence(fresh_postgres_url, queues=["mine"])
    notifier = Notifier(notices.store, Clock())
    notifier({f"{number:0190}" for number in range(50)})
    assert await presence.wait(LONG)
    await until(lambda: notices.payloads == ["*"])
    notifier({"another"})
    assert not await presence.wait(SHORT)
    await notifier.close()
    await presence.close()


async def test_quotes_and_other_letters_get_through(notices: Notices, fresh_postgres_url: str) -> None:
    queues = {"it's", "back\\slash", "grüße", "x" * 200}
    presence = await open_presence(fresh_postgres_url, queues=["grüße"])
    notifier = Notifier(notices.store, Clock())
    notifier(queues)
    assert await notices.queues(1) == [sorted(queues)]
    assert await presence.wait(LONG)
    await notifier.close()
    await presence.close()


@pytest.mark.parametrize("payload", ["", "not ours", "7", '{"a": 1}'])
async def test_what_others_say_on_our_channel_does_no_harm(fresh_postgres_url: str, payload: str) -> None:
    presence = await open_presence(fresh_postgres_url, queues=["mine"])
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
    assert await presence.wait(LONG)
    await connection.close()
    await presence.close()


async def test_a_callers_own_transaction_holds_no_notice(notices: Notices, fresh_postgres_url: str) -> None:
    """K32: a NOTIFY in there would hold up every other commit of the server. It comes later, by a way of our own."""
    engine = Engine(notices.store)
    notifier = Notifier(notices.store, Clock())
    engine.ctx.wakers.append(queue_waker(notifier))
    connection = await asyncpg.connect(fresh_postgres_url)
    async with connection.transaction():
        await engine.create(NewJob(type="echo"), connection=connection)
    callers = connection.get_server_pid()
    await connection.close()
    assert await notices.queues(2) == [["default"]] * 2
    await notifier.close()
    assert callers not in notices.senders


@pytest.mark.slow
@pytest.mark.postgres
async def test_without_a_database_hints_are_lost_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
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
