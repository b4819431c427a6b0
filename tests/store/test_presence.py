"""Presence: which processes are alive and which were killed."""

import asyncio
import os
import signal
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store import listen_connection
from holdfast.store.advisory_locks import worker_lock
from holdfast.store.migrate import migrate, sqlite_path
from holdfast.store.presence import Presence, open_presence
from tests.servers.postgres import PostgresServer, running
from tests.servers.proxy import CHUNK, Proxy
from tests.store.alive import living, seen_dead_from_outside

PATIENCE_SECONDS = 60.0


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def presence(store_url: str) -> AsyncIterator[Presence]:
    await migrate(store_url)
    presence = await open_presence(store_url)
    yield presence
    await presence.close()


# -- on both databases ------------------------------------------------------------------------------------------------


async def test_a_process_is_alive_until_it_is_killed(store_url: str, presence: Presence) -> None:
    async with living(store_url) as other:
        assert other.instance != presence.instance
        assert await presence.dead([other.instance]) == set()
        await other.kill()
        await until(lambda: _sees_dead(presence, other.instance))


async def _sees_dead(presence: Presence, name: str) -> bool:
    return await presence.dead([name]) == {name}


async def test_a_stopped_process_is_not_dead(store_url: str, presence: Presence) -> None:
    """Nor is one whose lease expired meanwhile: the lease decides that."""
    async with living(store_url) as other:
        with other.stopped():
            assert await presence.dead([other.instance]) == set()


@pytest.mark.parametrize("how", ["fork", "exec"])
async def test_a_child_process_does_not_keep_a_dead_parent_alive(fresh_sqlite_url: str, how: str) -> None:
    """The lock belongs to the process: no child inherits it, not even one that inherits every open file."""
    await migrate(fresh_sqlite_url)
    presence = await open_presence(fresh_sqlite_url)
    async with living(fresh_sqlite_url, how) as other:
        assert await presence.dead([other.instance]) == set()
        await other.kill()
        os.kill(other.child, 0)  # it still runs
        assert await presence.dead([other.instance]) == {other.instance}
    await presence.close()


async def test_a_process_never_finds_itself_dead_and_a_check_keeps_its_lock(store_url: str, presence: Presence) -> None:
    """Opening and closing a locked file would release our own lock."""
    second = await open_presence(store_url)
    for ours in (presence, second):
        assert await ours.dead([presence.instance, second.instance]) == set()
    assert not await seen_dead_from_outside(store_url, presence.instance)
    await second.close()


async def test_an_instance_name_without_a_lock_is_never_dead(presence: Presence) -> None:
    plain = presence.instance.removesuffix(".live")
    assert await presence.dead([plain, "a-worker-over-http", "", "x.live/../y"]) == set()


async def test_every_start_of_a_process_has_its_own_instance_name(store_url: str, presence: Presence) -> None:
    """K11."""
    second = await open_presence(store_url)
    assert second.names.isdisjoint(presence.names)
    assert presence.instance in presence.names
    await second.close()


# -- lock files -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def lock_directory(fresh_sqlite_url: str) -> Path:
    """The directory of lock files."""
    await migrate(fresh_sqlite_url)
    path = sqlite_path(fresh_sqlite_url)
    return path.with_name(f"{path.name}.workers")


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


def modes_in(directory: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in directory.iterdir()}


async def test_lock_files_are_private_and_removed_with_the_last_process(
    fresh_sqlite_url: str, lock_directory: Path
) -> None:
    first, second = [await open_presence(fresh_sqlite_url) for _ in range(2)]
    assert names_in(lock_directory) == {f"{first.instance}.lock", f"{second.instance}.lock"}
    assert modes_in(lock_directory) == {0o600}
    assert 0o700 in modes_in(lock_directory.parent)
    await first.close()
    assert names_in(lock_directory) == {f"{second.instance}.lock"}
    await second.close()
    assert lock_directory.name not in names_in(lock_directory.parent)


async def test_a_process_that_exited_normally_is_not_dead(fresh_sqlite_url: str, lock_directory: Path) -> None:
    async with living(fresh_sqlite_url) as other:
        presence = await open_presence(fresh_sqlite_url)
        await other.end()
        assert await presence.dead([other.instance]) == set()
        await presence.close()


async def test_the_lock_file_of_a_dead_process_stays_until_forget(fresh_sqlite_url: str, lock_directory: Path) -> None:
    async with living(fresh_sqlite_url) as other:
        await other.kill()
    presence = await open_presence(fresh_sqlite_url)
    assert await presence.dead([other.instance]) == {other.instance}
    presence.forget([other.instance, "../elsewhere"])
    assert await presence.dead([other.instance]) == set()
    assert names_in(lock_directory) == {f"{presence.instance}.lock"}
    await presence.close()


async def test_old_unlocked_lock_files_are_removed_at_the_next_start(
    fresh_sqlite_url: str, lock_directory: Path
) -> None:
    """But neither locked nor recent files: another process may still have to detect that crash."""
    async with living(fresh_sqlite_url) as killed, living(fresh_sqlite_url) as alive:
        await killed.kill()
        old, young, held = (lock_directory / f"{name}.lock" for name in ("old", killed.instance, alive.instance))
        old.touch()
        for path in (old, held):
            os.utime(path, (0, 0))
        presence = await open_presence(fresh_sqlite_url)
        assert {path for path in (old, young, held) if path.exists()} == {young, held}
        await presence.close()


async def test_an_instance_name_cannot_leave_the_lock_directory(fresh_sqlite_url: str, lock_directory: Path) -> None:
    presence = await open_presence(fresh_sqlite_url)
    stray = lock_directory.parent / "x-1-0123456789abcdef.live.lock"
    stray.touch()
    name = "../x-1-0123456789abcdef.live"
    assert await presence.dead([name]) == set()
    presence.forget([name])
    assert stray.exists()
    await presence.close()


async def test_without_a_lock_file_the_instance_name_is_not_marked_live(
    fresh_sqlite_url: str, lock_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite_path(fresh_sqlite_url).with_name(lock_directory.name).touch()  # a file where the directory should be
    presence = await open_presence(fresh_sqlite_url)
    assert not presence.instance.endswith(".live")
    assert "cannot hold a lock file" in caplog.text
    await presence.close()


# -- sessions ---------------------------------------------------------------------------------------------------------


async def terminate_sessions(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()


async def reconnected(presence: Presence, session_number: int) -> bool:
    return presence.session_number > session_number and presence.instance.endswith(".live")


async def test_a_lost_presence_connection_reconnects_under_its_name(fresh_postgres_url: str) -> None:
    presence, watcher = [await open_presence(fresh_postgres_url) for _ in range(2)]
    name, session_number = presence.instance, presence.session_number
    await terminate_sessions(fresh_postgres_url)
    await until(lambda: reconnected(presence, session_number))
    await until(lambda: reconnected(watcher, session_number))
    assert presence.instance == name
    assert await watcher.dead([name]) == set()
    assert await presence.wait(PATIENCE_SECONDS)  # it may have missed something
    await presence.close()
    await until(lambda: _sees_dead(watcher, name))
    await watcher.close()


async def test_a_disconnected_presence_finds_no_dead_and_is_not_marked_live(
    fresh_postgres_url: str,
) -> None:
    async with Proxy.to(fresh_postgres_url) as proxy:
        presence = await open_presence(proxy.url)
        async with living(fresh_postgres_url) as other:
            proxy.cut()
            await until(lambda: _is_disconnected(presence))
            with pytest.raises(StoreUnavailable):
                await presence.dead([other.instance])
        await presence.close()


async def _is_disconnected(presence: Presence) -> bool:
    return not presence.instance.endswith(".live")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A separate server that the tests may stop."""
    with running() as server:
        yield server


@pytest.mark.postgres
async def test_a_half_open_presence_connection_is_replaced(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K13: half-open sockets. The new session need not wait for the lock of the old one."""
    monkeypatch.setattr(listen_connection, "PING_SECONDS", 0.2)
    monkeypatch.setattr(listen_connection, "ANSWER_SECONDS", 0.5)
    presence = await open_presence(server.dsn())
    session_number = presence.session_number
    connection = await asyncpg.connect(server.dsn())
    [holder] = await connection.fetch(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    os.kill(holder["pid"], signal.SIGSTOP)
    try:
        await until(lambda: reconnected(presence, session_number))
    finally:
        os.kill(holder["pid"], signal.SIGCONT)
    await presence.close()
    await connection.close()


@pytest.mark.postgres
async def test_a_presence_in_a_large_fleet_pings_rarely(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes together ping about as often as a single one."""
    monkeypatch.setattr(listen_connection, "PING_SECONDS", 0.02)
    presence = await open_presence(server.dsn())
    pings: list[str] = []
    rows = listen_connection.ListenConnection.rows

    async def counted(self: listen_connection.ListenConnection, sql: str, *values: object) -> list[object]:
        pings.append(sql)
        return await rows(self, sql, *values)

    monkeypatch.setattr(listen_connection.ListenConnection, "rows", counted)

    async def often() -> bool:
        return len(pings) >= 5

    await until(often)
    presence.set_live_processes(1000)
    await asyncio.sleep(0.1)
    before = len(pings)
    await asyncio.sleep(0.5)
    assert len(pings) <= before + 1
    await presence.close()


@pytest.mark.postgres
@pytest.mark.parametrize("kill", [False, True])
async def test_after_a_server_restart_no_process_is_dead(server: PostgresServer, kill: bool) -> None:
    async with living(server.dsn()) as other:
        presence = await open_presence(server.dsn())
        session_number = presence.session_number
        await asyncio.to_thread(server.restart, kill=kill)
        await until(lambda: reconnected(presence, session_number))
        await until(lambda: _sees_alive(presence, other.instance))
        await presence.close()


async def _sees_alive(presence: Presence, name: str) -> bool:
    return await presence.dead([name]) == set()


async def test_a_process_of_another_database_on_the_same_server_counts_as_dead(
    fresh_postgres_url: str, empty_postgres_url: str
) -> None:
    here, there = await open_presence(fresh_postgres_url), await open_presence(empty_postgres_url)
    assert await here.dead([there.instance]) == {there.instance}
    await here.close()
    await there.close()


async def test_an_unreachable_database_raises_store_unavailable_for_a_presence() -> None:
    with pytest.raises(StoreUnavailable, match="cannot connect to PostgreSQL"):
        await open_presence("postgresql://nobody@127.0.0.1:1/none")


class Pooler(Proxy):
    """Announces another backend process id, as every pooler does."""

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        greeting = struct.pack("!cI", b"K", 12)
        while data := await server.read(CHUNK):
            before, found, after = data.partition(greeting)
            answers.write(before + found + struct.pack("!I", 4711) + after[4:] if found else data)
            await answers.drain()


async def test_behind_a_pooler_presence_finds_no_dead_and_every_wait_is_a_hint(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """K35: a lock or a LISTEN would belong to the next client of the connection."""
    async with Pooler.to(fresh_postgres_url) as pooler, living(fresh_postgres_url) as other:
        presence = await open_presence(pooler.url)
        assert "behind a pooler" in caplog.text
        assert not presence.instance.endswith(".live")
        await other.kill()
        assert await presence.dead([other.instance]) == set()
        presence.wake({"any"})
        assert await presence.wait(PATIENCE_SECONDS)
        await presence.close()


def test_all_processes_derive_the_same_lock_from_a_name() -> None:
    """In every version: a lock that other processes do not find looks like a crash."""
    assert worker_lock("host-1-0123456789abcdef.live") == 6492436303323027785
