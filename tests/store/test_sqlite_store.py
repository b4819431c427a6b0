"""The SQLite store: shared commits, independent failures, several processes on one file."""

import asyncio
import json
import sqlite3
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import RowRefused, StoreError, StoreUnavailable
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.store import SqliteStore, Tx, open_store, q
from holdfast.store.migrate import migrate, sqlite_path
from holdfast.store.queries import Query
from tests.store.counting import add_counters, count_up, counted

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(fresh_sqlite_url: str) -> Path:
    return sqlite_path(fresh_sqlite_url)


@pytest.fixture
async def store(fresh_sqlite_url: str) -> AsyncIterator[Any]:
    store = await open_store(fresh_sqlite_url, Clock(), Ids())
    await add_counters(store)
    yield store
    await store.close()


@contextmanager
def write_lock(path: Path) -> Iterator[sqlite3.Connection]:
    """A write transaction of another connection; the writer waits, and later writes queue up."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
        connection.close()


def commits(path: Path) -> int:
    """Counted from outside: in the write-ahead log the last frame of each commit carries the size of the database."""
    log = Path(f"{path}-wal").read_bytes()
    (page,) = struct.unpack(">I", log[8:12])
    frames = range(32, len(log), 24 + page)
    salt = log[16:24]
    return sum(1 for at in frames if log[at + 8 : at + 16] == salt and struct.unpack(">I", log[at + 4 : at + 8])[0])


async def test_the_file_uses_wal_and_full_fsync(store: SqliteStore) -> None:
    """S19: WAL, and an fsync for every commit."""

    async def look(tx: Tx) -> list[Any]:
        return [(await tx.all(Query(name, f"PRAGMA {name}")))[0][0] for name in ("journal_mode", "synchronous")]

    assert await store.write(look) == ["wal", 2]
    assert await store.read(look) == ["wal", 2]


async def test_queued_writes_share_one_commit(store: SqliteStore, path: Path) -> None:
    before = commits(path)
    with write_lock(path):
        writes = [asyncio.create_task(store.write(count_up)) for _ in range(40)]
        await asyncio.sleep(0)  # all of them are with the writer, which took the first and waits for the lock
    assert sorted(await asyncio.gather(*writes)) == list(range(1, 41))
    assert commits(path) - before <= 2, "one commit for the first, one for the rest"


async def test_a_failed_write_does_not_affect_others_in_the_same_commit(store: SqliteStore, path: Path) -> None:
    async def fails(tx: Tx) -> None:
        await count_up(tx)
        raise ZeroDivisionError

    async def is_refused(tx: Tx) -> None:
        await count_up(tx)
        await tx.all(Query("wrong", "INSERT INTO holdfast_queues (tenant, name) VALUES (NULL, NULL) RETURNING name"))

    before = commits(path)
    with write_lock(path):
        works = [count_up, fails, count_up, is_refused, count_up, fails]
        writes = [asyncio.create_task(store.write(work)) for work in works]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert [answers[place] for place in (0, 2, 4)] == [1, 2, 3]
    assert [type(answers[place]) for place in (1, 3, 5)] == [ZeroDivisionError, RowRefused, ZeroDivisionError]
    assert await counted(store) == 3
    assert commits(path) - before <= 2


async def test_a_cancelled_write_leaves_no_open_transaction(store: SqliteStore, path: Path) -> None:
    """F42: the write is done or not, and the next one finds a clean connection."""
    with write_lock(path):
        writes = [asyncio.create_task(store.write(count_up)) for _ in range(10)]
        await asyncio.sleep(0)
        for write in writes[::2]:
            write.cancel()
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False] * 5
    last = await store.write(count_up)
    assert last == await counted(store) >= 6
    with write_lock(path) as other:
        assert other.execute("SELECT max(slots) FROM holdfast_workers").fetchone() == (last,)


@pytest.mark.parametrize("seconds", [0, 1])
async def test_a_transaction_that_awaits_something_else_is_refused_and_rolled_back(
    store: SqliteStore, seconds: float
) -> None:
    """A thread without an event loop runs it, and the next in line would wait too."""

    async def waits(tx: Tx) -> None:
        await count_up(tx)
        await asyncio.sleep(seconds)

    for run in (store.write, store.read):
        with pytest.raises(StoreError, match="may only await that transaction") as caught:
            await run(waits)
        assert caught.value.code == "blocking_in_transaction"
    assert await counted(store) == 0


async def test_a_write_waits_for_another_process_and_then_succeeds(store: SqliteStore, path: Path) -> None:
    """F34: SQLITE_BUSY is waited out, with jitter."""
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
        "c.execute('UPDATE holdfast_workers SET slots = 100'); print('held', flush=True); sys.stdin.read();"
        "c.execute('COMMIT')"
    )
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin
    assert holder.stdout
    assert await holder.stdout.readline() == b"held\n"
    write = asyncio.create_task(store.write(count_up))
    assert await counted(store) == 0, "readers do not wait"
    assert not write.done()
    holder.stdin.close()
    assert await write == 101
    assert await holder.wait() == 0


async def test_a_file_that_stays_locked_raises_store_unavailable(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.BUSY_SECONDS", 0)
    says = r"lock timeout after 0 s, nothing was written: another process holds jobs.db"
    with write_lock(path), pytest.raises(StoreUnavailable, match=says):
        await store.write(count_up)
    assert await counted(store) == 0
    assert await store.write(count_up) == 1


async def test_a_full_disk_raises_store_unavailable_and_writes_nothing(fresh_sqlite_url: str, path: Path) -> None:
    """F19: what was asked for at that moment is refused; reads go on; with room again, so do writes."""
    engine = Engine(await open_store(fresh_sqlite_url))
    await engine.create(NewJob(type="echo"))

    async def allow(pages: int) -> None:
        await engine.store.write(lambda tx: tx.all(Query("cap", f"PRAGMA max_page_count = {pages}")))

    try:
        await allow(1)  # no fewer than there are
        big = [NewJob(type="echo", payload={"x": "x" * 200_000}) for _ in range(3)]
        with pytest.raises(StoreUnavailable, match="full") as caught:
            await engine.create_many(big)
        assert caught.value.code == "store_refused"
        assert sum(number for *_, number in await engine.reads.counts()) == 1

        await allow(1_000_000)
        await engine.create_many(big)
        assert sum(number for *_, number in await engine.reads.counts()) == 4
    finally:
        await engine.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_a_full_disk_fails_every_write_of_the_shared_commit(fresh_sqlite_url: str, path: Path) -> None:
    """S14: no caller gets a success for a commit that did not happen."""
    store = await open_store(fresh_sqlite_url)
    await add_counters(store)
    await store.write(lambda tx: tx.all(Query("cap", "PRAGMA max_page_count = 1")))
    grow = Query(
        "grow", "INSERT INTO holdfast_queues (tenant, name) VALUES ('t', hex(zeroblob(500000))) RETURNING tenant"
    )
    try:
        with write_lock(path):
            works = [count_up, lambda tx: tx.all(grow), count_up]
            writes = [asyncio.create_task(store.write(work)) for work in works]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert isinstance(answers[1], StoreUnavailable)
        done = [answer for answer in answers if not isinstance(answer, Exception)]
        assert await counted(store) == len(done)
    finally:
        await store.close()


async def test_four_processes_on_one_file_run_every_job_once(fresh_sqlite_url: str, path: Path) -> None:
    """F34, K46, R001-24, R003-103, R003-146, R003-151: the file does not even exist when they start."""
    command = [sys.executable, "-m", "tests.store.concurrent_process", fresh_sqlite_url, "25"]
    processes = [
        await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    outputs = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0] * 4, b"\n".join(error for _, error in outputs).decode()
    told = [json.loads(out) for out, _ in outputs]
    created = [job for one in told for job in one["created"]]
    claimed = Counter(job for one in told for job in one["claimed"])
    assert len(created) == 100
    assert claimed == Counter(created), "every job was claimed once"
    connection = sqlite3.connect(path)
    ended = connection.execute("SELECT state, epoch, count(*) FROM holdfast_jobs GROUP BY 1, 2").fetchall()
    assert ended == [("succeeded", 1, 100)]
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_many_processes_may_open_a_new_file_at_once(fresh_sqlite_url: str) -> None:
    stores = await asyncio.gather(*(open_store(fresh_sqlite_url) for _ in range(8)))
    await add_counters(stores[0])
    await asyncio.gather(*(store.write(count_up) for store in stores))
    assert await counted(stores[-1]) == 8
    for store in stores:
        await store.close()


async def test_a_read_transaction_sees_one_snapshot(store: SqliteStore) -> None:
    """S15."""
    looking, written = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def look_twice(tx: Tx) -> list[Any]:
        first = [row["slots"] for row in await tx.all(q.workers)]
        loop.call_soon_threadsafe(looking.set)
        asyncio.run_coroutine_threadsafe(written.wait(), loop).result(60)
        return first + [row["slots"] for row in await tx.all(q.workers)]

    look = asyncio.create_task(store.read(look_twice))
    await looking.wait()
    await store.write(count_up)
    written.set()
    assert await look == [0, 0]
    assert await counted(store) == 1


async def test_the_directory_of_a_new_file_is_private(tmp_path: Path) -> None:
    """SEC-47."""
    await migrate(f"sqlite:///{tmp_path}/data/jobs.db")
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
