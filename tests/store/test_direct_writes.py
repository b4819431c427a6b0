"""Direct writes on SQLite: small writes of a lone caller run on the thread of its event loop, and never wait there."""

import asyncio
import errno
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.ids import Ids
from holdfast.store import SqliteStore, Tx, direct_connection, identity, open_store, sqlite
from holdfast.store.migrate import sqlite_path
from tests.store.counting import add_counters, count_up, counted

WRITER = "holdfast-sqlite-write"


@pytest.fixture
def path(fresh_sqlite_url: str) -> Path:
    return sqlite_path(fresh_sqlite_url)


@pytest.fixture
async def store(fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Every commit counts as quick, whatever the disk of the test does."""
    monkeypatch.setattr(direct_connection, "QUICK_SECONDS", 3600.0)
    store = await open_store(fresh_sqlite_url, Clock(), Ids())
    await add_counters(store)
    yield store
    await store.close()


async def thread_of(store: SqliteStore, *, small: bool = True) -> str:
    """The thread in which a write of a caller that is alone runs."""

    async def work(tx: Tx) -> str:
        await count_up(tx)
        return threading.current_thread().name

    return await store.write(work, small=small)


def frames_in_log(path: Path) -> float:
    return Path(f"{path}-wal").stat().st_size / 4120


async def warm(store: SqliteStore) -> None:
    """The first writes are made by the writer thread, which opens the connection."""
    for _ in range(100):
        if await thread_of(store) != WRITER:
            return
    raise AssertionError("no write was direct")


async def test_a_small_write_of_a_lone_caller_runs_on_its_own_thread(store: SqliteStore) -> None:
    assert await thread_of(store) == WRITER
    await warm(store)
    before = await counted(store)
    assert await thread_of(store) == threading.current_thread().name
    assert await thread_of(store, small=False) == WRITER
    assert await counted(store) == before + 2


async def test_direct_writes_sync_every_commit_and_wait_for_no_lock(store: SqliteStore) -> None:
    await warm(store)
    connection = store._direct._connection
    assert connection is not None
    shown = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "busy_timeout")]
    assert shown == [2, 0]


async def test_while_another_connection_has_the_lock_the_event_loop_goes_on(store: SqliteStore, path: Path) -> None:
    await warm(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(thread_of(store))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not write.done()
        other.execute("COMMIT")
        assert await write == WRITER


async def test_slow_commits_are_made_by_the_writer_thread(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await warm(store)
    monkeypatch.setattr(direct_connection, "QUICK_SECONDS", 0.0)
    await thread_of(store)  # the first slow one
    assert {await thread_of(store) for _ in range(10)} == {WRITER}
    monkeypatch.setattr(direct_connection, "QUICK_SECONDS", 3600.0)
    await warm(store)


async def test_callers_of_the_same_moment_use_the_writer_thread(store: SqliteStore) -> None:
    await warm(store)
    threads = await asyncio.gather(*(thread_of(store) for _ in range(20)))
    assert set(threads) == {WRITER}


async def test_now_and_then_the_writer_thread_writes_and_shortens_the_log(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_connection, "DIRECT_MAX", 5)
    threads = [await thread_of(store) for _ in range(1500)]
    assert 100 < threads.count(WRITER) < 700
    assert frames_in_log(path) < 1200, "1500 commits of at least one frame each"


async def test_a_direct_write_that_fails_leaves_nothing_and_the_next_one_is_direct(store: SqliteStore) -> None:
    async def fails(tx: Tx) -> None:
        await count_up(tx)
        raise ZeroDivisionError

    await warm(store)
    before = await counted(store)
    with pytest.raises(ZeroDivisionError):
        await store.write(fails, small=True)
    assert await counted(store) == before
    assert await thread_of(store) != WRITER


async def test_callbacks_run_after_a_direct_commit_and_not_after_a_rollback(store: SqliteStore) -> None:
    seen: list[int] = []

    async def tells(tx: Tx, *, fails: bool) -> None:
        number = await count_up(tx)
        tx.after_commit(lambda: seen.append(number))
        if fails:
            raise ZeroDivisionError

    await warm(store)
    with pytest.raises(ZeroDivisionError):
        await store.write(lambda tx: tells(tx, fails=True), small=True)
    await store.write(lambda tx: tells(tx, fails=False), small=True)
    assert seen == [await counted(store)]


async def test_a_cancelled_direct_write_is_not_made(store: SqliteStore) -> None:
    await warm(store)
    before = await counted(store)
    write = asyncio.create_task(thread_of(store))
    await asyncio.sleep(0)
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    assert await counted(store) == before
    assert await thread_of(store) != WRITER


async def test_a_replaced_file_gets_the_next_write(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    await warm(store)
    copy = tmp_path / "copy"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.move(copy, path)
    before = await counted(store)
    assert await thread_of(store) == WRITER
    assert await counted(store) == before + 1
    await warm(store)


def denied(*_: Any) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied")


async def test_a_file_that_cannot_be_looked_at_is_for_the_writer_thread_which_reports_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warm(store)
    before = await counted(store)
    with monkeypatch.context() as patch:
        patch.setattr(identity, "os", SimpleNamespace(stat=denied))
        with pytest.raises(StoreUnavailable, match="Permission denied"):
            await thread_of(store)
    assert await counted(store) == before
    await warm(store)


async def test_an_error_before_a_direct_write_begins_keeps_no_lock(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> Any:
        raise ZeroDivisionError

    await warm(store)
    with monkeypatch.context() as patch:
        patch.setattr(store._direct, "begun", fails)
        with pytest.raises(ZeroDivisionError):
            await thread_of(store)
    assert not store._writing.locked()
    await warm(store)


@pytest.mark.parametrize("direct", [False, True])
async def test_a_write_that_waits_its_turn_while_the_store_closes_is_refused(store: SqliteStore, direct: bool) -> None:
    if direct:
        await warm(store)
    write = asyncio.create_task(thread_of(store))
    close = asyncio.create_task(store.close())  # begins during the turn of the write
    await close
    assert write.done(), "its request is behind the end of the queue"
    with pytest.raises(StoreUnavailable) as refused:
        await write
    assert refused.value.code == "store_closed"


async def test_a_store_closed_by_another_event_loop_refuses_a_write_that_is_about_to_be_queued(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close_first(*parts: Any, make: Any = sqlite._WriteRequest) -> Any:
        other = threading.Thread(target=lambda: asyncio.run(store.close()))
        other.start()
        other.join()
        return make(*parts)

    monkeypatch.setattr(sqlite, "_WriteRequest", close_first)
    write = asyncio.create_task(thread_of(store, small=False))
    await asyncio.sleep(0)
    assert write.done(), "its request is behind the end of the queue"
    with pytest.raises(StoreUnavailable, match="closed"):
        await write


async def test_connections_are_closed_between_direct_writes_of_other_event_loops(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[bool] = []

    def close(connection: sqlite3.Connection) -> None:
        alone.append(store._writing.locked())
        sqlite3.Connection.close(connection)

    await warm(store)
    monkeypatch.setattr(sqlite.SqliteConnection, "close", close)
    await store.close()
    assert alone
    assert all(alone)


async def test_a_write_of_another_event_loop_makes_a_caller_not_alone(store: SqliteStore) -> None:
    await warm(store)
    waits, ends = threading.Event(), threading.Event()

    async def slow(tx: Tx) -> None:
        waits.set()
        ends.wait()

    other = threading.Thread(target=lambda: asyncio.run(store.write(slow)))
    other.start()
    await asyncio.to_thread(waits.wait)
    write = asyncio.create_task(thread_of(store))
    await asyncio.sleep(0)
    ends.set()
    assert await write == WRITER
    await asyncio.to_thread(other.join)
    assert not store._callers
    await warm(store)
