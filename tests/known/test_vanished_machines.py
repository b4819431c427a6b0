"""A machine vanishes without closing its connections: its locks are released soon, and waiting work continues."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.engine import Engine
from holdfast.engine.webhooks.webhooks import READER
from holdfast.model import NewJob
from holdfast.model.reports import HeldLease
from holdfast.store import connect, dead_connections, open_store, postgres, q
from holdfast.store.base import Tx
from holdfast.store.postgres import PostgresStore
from tests.servers.proxy import Proxy
from tests.webhooks.steps import create, sent_to, subscribe
from tests.worker.in_process import until

PATIENCE_SECONDS = 60


@pytest.fixture
async def wire(fresh_postgres_url: str) -> AsyncIterator[Proxy]:
    async with Proxy.to(fresh_postgres_url) as wire:
        yield wire


@pytest.fixture
async def engine(fresh_postgres_url: str) -> AsyncIterator[Engine]:
    engine = Engine(await open_store(fresh_postgres_url))
    yield engine
    await engine.close()


async def test_jobs_locked_by_a_vanished_machine_can_be_written_again(
    engine: Engine, wire: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "IDLE_IN_TRANSACTION_SECONDS", 1.0)
    worker = (await engine.workers.register()).id
    await engine.create(NewJob(type="echo"))
    [lease] = await engine.claim(worker)
    lost = await open_store(wire.url)
    locked = asyncio.Event()

    async def vanish(tx: Tx) -> None:
        await tx.all(q.renew_leases, held=[(lease.id, lease.token)], worker=worker)
        wire.swallow(requests=True, answers=True)
        locked.set()
        await asyncio.Event().wait()

    vanishing = asyncio.create_task(lost.write(vanish))
    await locked.wait()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await engine.heartbeat(worker, [HeldLease(lease.id, lease.token)])).lost == []
    vanishing.cancel()
    await asyncio.wait([vanishing])
    await lost.close()


async def test_webhooks_continue_soon_after_the_delivering_server_vanished(
    engine: Engine, wire: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had locked the row that says how far the events were read, and all other servers leave that row alone."""
    monkeypatch.setattr(connect, "IDLE_IN_TRANSACTION_SECONDS", 1.0)
    webhook = await subscribe(engine)
    job = await create(engine)
    lost = await open_store(wire.url)
    locked = asyncio.Event()

    async def vanish(tx: Tx) -> None:
        assert await tx.one(q.locked_reader, name=READER) is not None
        wire.swallow(requests=True, answers=True)
        locked.set()
        await asyncio.Event().wait()

    vanishing = asyncio.create_task(lost.write(vanish))
    await locked.wait()

    async def has_made_it() -> bool:
        return (await engine.webhooks.fan_out()).made == 1

    await until(has_made_it, seconds=PATIENCE_SECONDS)
    assert [(each.event, each.job_id) for each in await sent_to(engine, webhook)] == [("job.created", job)]
    vanishing.cancel()
    await asyncio.wait([vanishing])
    await lost.close()


async def test_every_connection_has_keepalive_settings_on_both_ends(
    fresh_postgres_url: str,
) -> None:
    store = await open_store(fresh_postgres_url)
    assert isinstance(store, PostgresStore)
    connection = await store._connections.acquire()
    wire = connection._transport.get_extra_info("socket")
    assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 9000
    names = ("idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_user_timeout")
    assert [await connection.fetchval(f"SHOW {name}") for name in names] == ["10s", "10", "20000"]
    store._connections.release(connection)
    await store.close()


async def test_a_transaction_that_the_server_ended_for_being_idle_is_run_again(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop that was blocked inside a transaction: nothing was written, and the caller need not know."""
    monkeypatch.setattr(connect, "IDLE_IN_TRANSACTION_SECONDS", 0.2)
    store = await open_store(fresh_postgres_url)
    runs = 0

    async def work(tx: Tx) -> int:
        nonlocal runs
        runs += 1
        await tx.all(q.clock)
        if runs == 1:
            time.sleep(1)  # noqa: ASYNC251
        await tx.all(q.clock)
        return runs

    assert await store.write(work) == 2
    await store.close()


async def test_a_reaper_that_vanished_does_not_stop_the_others(engine: Engine, wire: Proxy) -> None:
    """It was in its transaction and held no row that others need: not even the record of the last sweep."""
    lost = Engine(await open_store(wire.url))
    await engine.maintenance.reap()
    reaching, paused = asyncio.Event(), asyncio.Event()
    snapshot = lost.ctx.registry.snapshot

    async def vanish(*args: Any) -> Any:
        reaching.set()
        await paused.wait()
        return await snapshot(*args)

    lost.ctx.registry.snapshot = vanish  # type: ignore[method-assign]
    worker = (await engine.workers.register()).id
    await engine.create(NewJob(type="echo", policy={"lease_seconds": 600}))
    await engine.claim(worker, instance="gone")
    await _make_the_last_sweep_old(engine)
    reaping = asyncio.create_task(lost.maintenance.reap(gone=["gone"]))
    await reaching.wait()
    await _make_the_last_sweep_old(engine, lock_timeout="10s")
    paused.set()
    await reaping
    await lost.close()


async def _make_the_last_sweep_old(engine: Engine, *, lock_timeout: str = "0") -> None:
    store: Any = engine.store
    connection = await store._connections.acquire()
    await connection.execute(f"SET lock_timeout = '{lock_timeout}'")
    await connection.execute("UPDATE holdfast_sweeps SET swept_at = swept_at - interval '7 seconds'")
    store._connections.release(connection)


# -- half-open connections --------------------------------------------------------------------------------------------


class HalfOpen(Proxy):
    """After `silence`, existing connections drop everything; new ones work."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._open: set[asyncio.Event] = set()

    def silence(self) -> int:
        for heard in self._open:
            heard.set()
        return len(self._open)

    async def _to_server(
        self, client: asyncio.StreamReader, requests: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        self._open.add(heard)
        while data := await client.read(1 << 16):
            if not heard.is_set():
                requests.write(data)
                await requests.drain()

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        while data := await server.read(1 << 16):
            if not heard.is_set():
                answers.write(data)
                await answers.drain()


async def test_after_a_network_failure_the_next_claim_succeeds_within_one_timeout(
    engine: Engine, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten idle connections are half open. The first statement finds out, and all of them are dropped."""
    monkeypatch.setattr(postgres, "COMMAND_SECONDS", 600.0)  # so that a busy machine does not reach it
    async with HalfOpen.to(fresh_postgres_url) as wire:
        behind = Engine(await open_store(wire.url))
        worker = (await behind.workers.register()).id
        await asyncio.gather(*(behind.store.read(_slow) for _ in range(10)))
        await engine.create(NewJob(type="echo"))
        assert wire.silence() >= 10
        began = time.monotonic()
        leases = []
        while not leases:
            try:
                leases = await behind.claim(worker)
            except Exception as error:
                print(f"after {time.monotonic() - began:.1f} s: {error}")
        print(f"claimed after {time.monotonic() - began:.1f} s")
        assert time.monotonic() - began < 120, "it waited for the timeout of a statement"
        await behind.close()


async def _slow(tx: Tx) -> None:
    await tx.one(q.clock)
    await asyncio.sleep(0.2)


async def test_a_slow_statement_is_not_treated_as_a_dead_connection(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_connections, "UNANSWERED_SECONDS", 0.2)
    monkeypatch.setattr(dead_connections, "CHECK_SECONDS", 0.1)
    store: Any = await open_store(fresh_postgres_url)
    blocker = await asyncpg.connect(fresh_postgres_url)
    await blocker.execute("BEGIN; LOCK TABLE holdfast_sweeps IN ACCESS EXCLUSIVE MODE")
    looks: list[list[Any]] = []
    idle = store._detector._idle_on_server

    async def seen(stalled: list[Any]) -> list[Any]:
        looks.append(await idle(stalled))
        return looks[-1]

    store._detector._idle_on_server = seen
    waiting = asyncio.create_task(store.read(lambda tx: tx.one(q.sweep, pause=1.0)))
    await until(lambda: len(looks) >= 3)
    assert looks[:3] == [[], [], []]
    await blocker.execute("COMMIT")
    await waiting
    await blocker.close()
    await store.close()
