"""A live worker is not reported as crashed, whatever happens to its connections."""

import asyncio
import contextlib
import time

import asyncpg
import pytest

from holdfast.assembly.engine import open_engine
from holdfast.assembly.heartbeat_process import HeartbeatSpec, _source
from holdfast.model import Liveness
from holdfast.settings import Settings
from holdfast.store import listen_connection
from holdfast.store.advisory_locks import worker_lock
from holdfast.store.migrate import migrate
from holdfast.store.presence import open_presence
from tests.servers.postgres import running
from tests.worker.real_databases.conftest import harness  # noqa: F401
from tests.worker.real_databases.test_lost_connections import OpenHarness
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = pytest.mark.postgres

_HOLDERS = """
SELECT pid
  FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32 | objid::bigint) = $1
"""


class Operator:
    """Sees and ends the connections that hold the presence lock of the process that holds jobs."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", key: int) -> None:
        self._connection, self._key = connection, key

    @classmethod
    async def of(cls, on: WorkerHarness, url: str) -> "Operator":
        async def instances() -> list[str]:
            return await (await on.engine()).polls.instances()

        [instance] = await eventually(instances)
        assert instance.endswith(".live")
        return cls(await asyncpg.connect(url), worker_lock(instance))

    async def holders(self) -> set[int]:
        return {row["pid"] for row in await self._connection.fetch(_HOLDERS, self._key)}

    async def both_hold(self) -> bool:
        """The worker's listening session and its heartbeat process."""
        return len(await self.holders()) == 2

    async def end(self, *pids: int) -> None:
        for pid in pids or await self.holders():
            await self._connection.fetch("SELECT pg_terminate_backend($1)", pid)

    async def close(self) -> None:
        await self._connection.close()


async def all_connections_left(url: str) -> list["asyncpg.Connection[asyncpg.Record]"]:
    taken = []
    with contextlib.suppress(asyncpg.TooManyConnectionsError):
        while True:
            taken.append(await asyncpg.connect(url))
    return taken


@pytest.mark.slow
async def test_a_job_that_blocks_the_event_loop_is_kept_although_its_connections_are_terminated(
    fresh_postgres_url: str,
    harness: OpenHarness,  # noqa: F811
) -> None:
    """The event loop cannot come back to hold the lock; the heartbeat process does."""
    on = await harness(fresh_postgres_url)
    await on.start("--queues", "blocked")
    await on.start("--queues", "watcher")
    job = await jobs.holding_the_gil.options(queue="blocked").enqueue(seconds=15)
    await on.started(job)
    operator = await Operator.of(on, fresh_postgres_url)
    await eventually(operator.both_hold)
    ended = 0
    while not on.handler_log.notes("returned", job.id):
        ended += len(await operator.holders())
        await operator.end()
        await asyncio.sleep(2.5)
    assert ended >= 4
    assert (await on.final(job)).result == 1
    assert await on.outcomes(job) == ["succeeded"]
    await operator.close()


@pytest.mark.slow
async def test_at_max_connections_a_live_worker_keeps_its_jobs(harness: OpenHarness) -> None:  # noqa: F811
    """Its listening session is cut and finds no free connection again; its heartbeats go on."""
    with running(settings=["max_connections=20", "superuser_reserved_connections=0"]) as server:
        await migrate(server.dsn())
        on = await harness(server.dsn())
        await on.start("--queues", "here")
        await on.start("--queues", "watcher")
        job = await jobs.on_the_loop.options(queue="here").enqueue(seconds=12)
        await on.started(job)
        operator = await Operator.of(on, server.dsn())
        await eventually(operator.both_hold)
        crowd = await all_connections_left(server.dsn())
        await operator.end(min(await operator.holders()))  # the older of the two
        crowd += await all_connections_left(server.dsn())
        assert (await on.final(job)).result == 1
        assert await on.outcomes(job) == ["succeeded"]
        for connection in crowd:
            await connection.close()
        await operator.close()
        await on.close()


async def test_an_event_loop_blocked_intermittently_keeps_its_presence_connection(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a ping came while the event loop was blocked: then it did come."""
    monkeypatch.setattr(listen_connection, "PING_SECONDS", 0.01)
    monkeypatch.setattr(listen_connection, "ANSWER_SECONDS", 2.0)
    presence = await open_presence(fresh_postgres_url)
    session_number = presence.session_number
    for _ in range(3):
        for _ in range(5):
            await asyncio.sleep(0.01)
        time.sleep(2.5)  # noqa: ASYNC251
    await asyncio.sleep(0.2)
    assert presence.session_number == session_number
    assert presence.instance.endswith(".live")
    await presence.close()


async def test_the_heartbeat_process_holds_the_lock_of_its_worker_from_its_first_beat(fresh_postgres_url: str) -> None:
    """Opening the engine has opened a connection already, without the lock."""
    name = "host-1-0123456789abcdef.live"
    settings = Settings(database_url=fresh_postgres_url)
    engine = await open_engine(settings)
    worker = (await engine.workers.register(name="w")).id
    await engine.close()
    lost = asyncio.Event()
    spec = HeartbeatSpec(
        lease_table=0, heartbeat_seconds=1, watchdog_seconds=1, settings=settings, worker=worker, presence=name
    )
    source = await _source(spec, lost)
    await source.heartbeat([], liveness=Liveness.IDLE, slots=1)
    operator = Operator(await asyncpg.connect(fresh_postgres_url), worker_lock(name))
    assert len(await operator.holders()) == 1
    assert not lost.is_set()
    await operator.end()
    async with asyncio.timeout(60):
        await lost.wait()
    await source.heartbeat([], liveness=Liveness.IDLE, slots=1)
    assert len(await operator.holders()) == 1
    await operator.close()
    await source.close()
