"""The database goes back in time under a running process: after a restore, or a failover that lost commits."""

import logging
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast.assembly.engine import open_engine
from holdfast.engine import Engine
from holdfast.engine.insert import checked
from holdfast.ids import Ids
from holdfast.model import JobType, NewJob
from holdfast.settings import Settings
from holdfast.store import sqlite
from holdfast.store.identity import IdentityTracker, inode_of, read_identity
from holdfast.store.migrate import migrate, sqlite_path
from tests.conftest import administer
from tests.engine.steps import ask
from tests.servers.postgres import running

LANE = "SELECT l.tenant, l.queue, l.type FROM holdfast_jobs j JOIN holdfast_lanes l ON l.id = j.lane WHERE j.id = :id"


@asynccontextmanager
async def process(url: str) -> AsyncIterator[Engine]:
    """What a process keeps while the database changes under it."""
    engine = await open_engine(Settings(database_url=url))
    try:
        yield engine
    finally:
        await engine.close()


async def lane_of(engine: Engine, job_id: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in await ask(engine, LANE, id=job_id)]


async def lose(engine: Engine, *tables: str) -> None:
    """As if their first rows had never been committed; their ids then go to others. No connection notices."""
    for table in tables:
        first = f"(SELECT min(id) FROM holdfast_{table})"
        await ask(engine, f"UPDATE holdfast_{table} SET digest = 'another one' WHERE id = {first} RETURNING id")
    await ask(engine, "UPDATE holdfast_lanes SET tenant = 'b' WHERE digest = 'another one' RETURNING id")


def restore(backup: Path, path: Path) -> None:
    for leftover in path.parent.glob(f"{path.name}-*"):
        leftover.unlink()
    shutil.move(backup, path)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("lost", ["lanes", "policies"])
async def test_after_a_restore_no_job_uses_a_lane_of_another_tenant(
    engine: Engine, store_url: str, key: str | None, lost: str
) -> None:
    first = await engine.create(NewJob(type="echo", tenant="a"))
    await lose(engine, lost)
    async with process(store_url) as another:  # to which lane and policy have other ids already
        await another.create(NewJob(type="echo", tenant="a"))
    made = await engine.create(NewJob(type="echo", tenant="a", idempotency_key=key))
    assert await lane_of(engine, made.id) == [("a", "default", "echo")]
    before, after = [
        (await ask(engine, "SELECT lane, policy FROM holdfast_jobs WHERE id = :id", id=job))[0]
        for job in (first.id, made.id)
    ]
    changed = (after["lane"] != before["lane"], after["policy"] != before["policy"])
    assert changed == (lost == "lanes", lost == "policies")


@pytest.mark.parametrize("keys", [[None, None], ["k", "l"], ["k", None]])
async def test_after_a_restore_concurrent_creates_use_their_own_lanes(engine: Engine, keys: list[str | None]) -> None:
    await engine.create(NewJob(type="echo", tenant="a"))
    await lose(engine, "lanes", "policies")
    tenants = ["a", "c"]
    jobs = [NewJob(type="echo", tenant=tenant, idempotency_key=key) for tenant, key in zip(tenants, keys, strict=True)]
    made = await engine.create_each([checked(job) for job in jobs])
    assert [(await lane_of(engine, one.id))[0][0] for one in made] == tenants  # type: ignore[union-attr]
    [row] = await ask(engine, "SELECT count(*) AS jobs FROM holdfast_jobs")
    assert row["jobs"] == 3, "none is stored twice"


async def test_after_a_restore_a_batch_of_several_types_is_stored_once(engine: Engine) -> None:
    await engine.create(NewJob(type="echo", tenant="a"))
    await lose(engine, "lanes", "policies")
    made = await engine.create_many([NewJob(type="echo", tenant="a"), NewJob(type="other", tenant="a")])
    assert [(await lane_of(engine, one.id))[0][2] for one in made] == ["echo", "other"]
    [row] = await ask(engine, "SELECT count(*) AS jobs FROM holdfast_jobs")
    assert row["jobs"] == 3


@pytest.mark.postgres
async def test_a_running_process_drops_its_caches_after_a_restore(
    postgres_server_url: str, fresh_postgres_url: str
) -> None:
    """The database is dropped and made again from a backup, from before this process had declared or created."""
    name = urlsplit(fresh_postgres_url).path[1:]
    await administer(postgres_server_url, f"CREATE DATABASE {name}_backup TEMPLATE {name}")
    async with process(fresh_postgres_url) as engine:
        await engine.job_types.declare(JobType(name="echo", queue="fast", policy={"max_lost": 7}))
        before = await engine.reads.get((await engine.create(NewJob(type="echo", tenant="a"))).id)
        assert (await engine.reads.snapshot(before.policy)).policy.max_lost == 7

        await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")
        await administer(postgres_server_url, f"ALTER DATABASE {name}_backup RENAME TO {name}")
        async with process(fresh_postgres_url) as another:
            theirs = await another.reads.get((await another.create(NewJob(type="mail", tenant="b"))).id)
            assert theirs.policy == before.policy, "the same id, for something else"

        assert (await engine.reads.snapshot(theirs.policy)).policy.max_lost == 3
        made = await engine.create(NewJob(type="echo", tenant="a"))
        assert await lane_of(engine, made.id) == [("a", "fast", "echo")], "as it was declared, though that was lost"


@pytest.mark.parametrize("moment", ["before it is open", "after it is open"])
def test_a_connection_has_the_file_that_is_at_the_path(
    fresh_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The file is replaced while a thread of a running process opens it."""
    path, backup = sqlite_path(fresh_sqlite_url), tmp_path / "backup.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
        target.execute("CREATE TABLE of_the_backup (id INTEGER)")
        source.execute("CREATE TABLE made_later (id INTEGER)")
    opened, replaced = sqlite3.connect, False

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        nonlocal replaced
        first, replaced = not replaced, True
        if first and moment == "before it is open":
            restore(backup, path)
        connection = opened(*args, **options)
        if first and moment == "after it is open":
            restore(backup, path)
        return connection

    monkeypatch.setattr("holdfast.store.sqlite.sqlite3.connect", connect)
    with closing(sqlite.connect(path, Ids())) as connection:
        assert connection.file == inode_of(path)
        assert connection.execute("SELECT count(*) FROM of_the_backup").fetchone() == (0,)


async def test_a_running_process_continues_on_a_replaced_sqlite_file(
    fresh_sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path, backup = sqlite_path(fresh_sqlite_url), tmp_path / "backup.db"
    async with process(fresh_sqlite_url) as engine:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        lost = await engine.create(NewJob(type="echo", tenant="a"))
        restore(backup, path)
        made = await engine.create(NewJob(type="echo", tenant="a"))
        assert [job.id for job in (await engine.reads.page()).jobs] == [made.id]
    async with process(fresh_sqlite_url) as engine:
        assert [job.id for job in (await engine.reads.page()).jobs] == [made.id], f"{lost.id} went with the old file"
    assert "restored, replaced, or failed over" in caplog.text


@pytest.mark.postgres
async def test_a_failover_to_a_new_timeline_is_detected_by_the_next_connection() -> None:
    """A standby that takes over may lack the last commits. The system is the same, only its timeline is not."""
    forgotten: list[bool] = []
    with running() as server:
        await migrate(server.dsn())
        async with process(server.dsn()) as engine:
            engine.ctx.registry.forgotten.append(lambda: forgotten.append(True))
            before = await engine.store.identify()
            server.restart()
            await engine.reads.now()
            assert forgotten == [], "a restart loses nothing"
            server.take_over()
            await engine.reads.now()
            after = await engine.store.identify()
    assert forgotten
    assert before is not None
    assert after is not None
    assert (before.database, before.name) == (after.database, after.name)
    assert before.generation != after.generation


@pytest.mark.postgres
async def test_another_address_of_the_same_server_counts_as_the_same_database(caplog: pytest.LogCaptureFixture) -> None:
    identity, changes = IdentityTracker(), list[bool]()
    identity.on_change.append(lambda: changes.append(True))
    names = set()
    with running() as server:
        await migrate(server.dsn())
        for host in ("127.0.0.1", str(server.directory), "127.0.0.1"):
            connection = await asyncpg.connect(server.dsn(), host=host, port=server.port)
            found = await read_identity(connection, pooled=False)
            assert found is not None
            names.add(found.name)
            identity.update(found)
            await connection.close()
    assert len(names) == 2
    assert not changes
    assert "has changed" not in caplog.text
