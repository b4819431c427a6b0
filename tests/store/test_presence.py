"""A process that is present is known to live; one that was killed is known to be dead; of the rest nobody knows."""

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
        await until(lambda: _sees(presence, other.instance))


async def _sees(presence: Presence, name: str) -> bool:
    return await presence.dead([name]) == {name}


async def test_a_process_that_stands_still_is_not_dead(store_url: str, presence: Presence) -> None:
    """Nor is one whose lease ran out meanwhile: that is for the lease to decide."""
    async with living(store_url) as other:
        with other.stopped():
            assert await presence.dead([other.instance]) == set()


@pytest.mark.parametrize("how", ["fork", "exec"])
async def test_no_child_keeps_a_dead_parent_alive(fresh_sqlite_url: str, how: str) -> None:
    """The lock belongs to the process: no child inherits it, not even one that inherits every open file."""
    await migrate(fresh_sqlite_url)
    presence = await open_presence(fresh_sqlite_url)
    async with living(fresh_sqlite_url, how) as other:
        assert await presence.dead([other.instance]) == set()
        await other.kill()
        os.kill(other.child, 0)  # it still runs
        assert await presence.dead([other.instance]) == {other.instance}
    await presence.close()


async def test_we_never_find_ourselves_dead_and_looking_does_not_hurt_us(store_url: str, presence: Presence) -> None:
    """To open and close a file that we have locked would drop the lock."""
    second = await open_presence(store_url)
    for ours in (presence, second):
        assert await ours.dead([presence.instance, second.instance]) == set()
    assert not await seen_dead_from_outside(store_url, presence.instance)
    await second.close()


async def test_nobody_is_judged_by_a_name_that_promised_no_lock(presence: Presence) -> None:
    plain = presence.instance.removesuffix(".live")
    assert await presence.dead([plain, "a-worker-over-http", "", "x.live/../y"]) == set()


async def test_every_start_of_a_process_has_a_name_of_its_own(store_url: str, presence: Presence) -> None:
    """K11."""
    second = await open_presence(store_url)
    assert second.names.isdisjoint(presence.names)
    assert presence.instance in presence.names
    await second.close()


# -- lock files -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def beside(fresh_sqlite_url: str) -> Path:
    """The directory of lock files."""
    await migrate(fresh_sqlite_url)
    path = sqlite_path(fresh_sqlite_url)
    return path.with_name(f"{path.name}.workers")


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


def modes_in(directory: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in directory.iterdir()}


async def test_lock_files_are_for_one_user_and_go_with_the_last_process(fresh_sqlite_url: str, beside: Path) -> None:
    first, second = [await open_presence(fresh_sqlite_url) for _ in range(2)]
    assert names_in(beside) == {f"{first.instance}.lock", f"{second.instance}.lock"}
    assert modes_in(beside) == {0o600}
    assert 0o700 in modes_in(beside.parent)
    await first.close()
    assert names_in(beside) == {f"{second.instance}.lock"}
    await second.close()
    assert beside.name not in names_in(beside.parent)


async def test_a_process_that_ended_well_is_not_found_dead(fresh_sqlite_url: str, beside: Path) -> None:
    async with living(fresh_sqlite_url) as other:
        presence = await open_presence(fresh_sqlite_url)
        await other.end()
        assert await presence.dead([other.instance]) == set()
        await presence.close()


async def test_the_file_of_a_dead_process_stays_until_it_is_forgotten(fresh_sqlite_url: str, beside: Path) -> None:
    async with living(fresh_sqlite_url) as other:
        await other.kill()
    presence = await open_presence(fresh_sqlite_url)
    assert await presence.dead([other.instance]) == {other.instance}
    presence.forget([other.instance, "../elsewhere"])
    assert await presence.dead([other.instance]) == set()
    assert names_in(beside) == {f"{presence.instance}.lock"}
    await presence.close()


async def test_what_somebody_left_long_ago_goes_with_the_next_start(fresh_sqlite_url: str, beside: Path) -> None:
    """But neither what is held, nor what is young: somebody may still have to see that death."""
    async with living(fresh_sqlite_url) as killed, living(fresh_sqlite_url) as alive:
        await killed.kill()
        old, young, held = (beside / f"{name}.lock" for name in ("old", killed.instance, alive.instance))
        old.touch()
        for path in (old, held):
            os.utime(path, (0, 0))
        presence = await open_presence(fresh_sqlite_url)
        assert {path for path in (old, young, held) if path.exists()} == {young, held}
        await presence.close()


async def test_a_name_cannot_lead_out_of_the_directory(fresh_sqlite_url: str, beside: Path) -> None:
    presence = await open_presence(fresh_sqlite_url)
    stray = beside.parent / "x-1-0123456789abcdef.live.lock"
    stray.touch()
    name = "../x-1-0123456789abcdef.live"
    assert await presence.dead([name]) == set()
    presence.forget([name])
    assert stray.exists()
    await presence.close()


async def test_where_no_lock_can_be_held_the_leases_decide(
    fresh_sqlite_url: str, beside: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite_path(fresh_sqlite_url).with_name(beside.name).touch()  # a file where the directory should be
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


async def came_back(presence: Presence, session_number: int) -> bool:
    return presence.session_number > session_number and presence.instance.endswith(".live")


async def test_a_session_that_is_cut_comes_back_under_its_name(fresh_postgres_url: str) -> None:
    presence, watcher = [await open_presence(fresh_postgres_url) for _ in range(2)]
    name, session_number = presence.instance, presence.session_number
    await terminate_sessions(fresh_postgres_url)
    await until(lambda: came_back(presence, session_number))
    await until(lambda: came_back(watcher, session_number))
    assert presence.instance == name
    assert await watcher.dead([name]) == set()
    assert await presence.wait(PATIENCE_SECONDS)  # it may have missed something
    await presence.close()
    await until(lambda: _sees(watcher, name))
    await watcher.close()


async def test_while_it_is_cut_it_neither_judges_nor_claims_under_a_name_that_could_be_judged(
    fresh_postgres_url: str,
) -> None:
    async with Proxy.to(fresh_postgres_url) as proxy:
        presence = await open_presence(proxy.url)
        async with living(fresh_postgres_url) as other:
            proxy.cut()
            await until(lambda: _is_cut(presence))
            with pytest.raises(StoreUnavailable):
                await presence.dead([other.instance])
        await presence.close()


async def _is_cut(presence: Presence) -> bool:
    return not presence.instance.endswith(".live")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One of our own: it may be stopped, and so may its processes."""
    with running() as server:
        yield server


@pytest.mark.postgres
async def test_a_session_whose_other_end_is_silent_is_given_up(
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
        await until(lambda: came_back(presence, session_number))
    finally:
        os.kill(holder["pid"], signal.SIGCONT)
    await presence.close()
    await connection.close()


@pytest.mark.postgres
async def test_one_among_many_asks_seldom_whether_its_session_is_there(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together they ask about as often as one would alone."""
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
async def test_a_restart_of_the_server_is_nobodys_death(server: PostgresServer, kill: bool) -> None:
    async with living(server.dsn()) as other:
        presence = await open_presence(server.dsn())
        session_number = presence.session_number
        await asyncio.to_thread(server.restart, kill=kill)
        await until(lambda: came_back(presence, session_number))
        await until(lambda: _sees_alive(presence, other.instance))
        await presence.close()


async def _sees_alive(presence: Presence, name: str) -> bool:
    return await presence.dead([name]) == set()


async def test_processes_of_another_database_on_the_same_server_are_not_here(
    fresh_postgres_url: str, empty_postgres_url: str
) -> None:
    here, there = await open_presence(fresh_postgres_url), await open_presence(empty_postgres_url)
    assert await here.dead([there.instance]) == {there.instance}
    await here.close()
    await there.close()


async def test_no_database_is_an_error_that_says_so() -> None:
    with pytest.raises(StoreUnavailable, match="cannot connect to PostgreSQL"):
        await open_presence("postgresql://nobody@127.0.0.1:1/none")


class Pooler(Proxy):
    """Greets with a process id of its own, as every pooler does: the one that answers will be another."""

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        greeting = struct.pack("!cI", b"K", 12)
        while data := await server.read(CHUNK):
            before, found, after = data.partition(greeting)
            answers.write(before + found + struct.pack("!I", 4711) + after[4:] if found else data)
            await answers.drain()


async def test_behind_a_pooler_the_leases_decide_and_polling_finds_the_work(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """K35: a lock or a LISTEN would belong to whoever has the connection next."""
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
    """Whatever their version: a lock that others do not find looks like a death."""
    assert worker_lock("host-1-0123456789abcdef.live") == 6492436303323027785
