"""Whoever watches a store is told of every query: which it was, how long it took, what it failed with."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.errors import HoldfastError, StoreError
from holdfast.model import NewJob
from holdfast.observe.query_metrics import error_code
from holdfast.store import Store, open_store
from holdfast.store.observer import BEGIN, COMMIT, CONNECT
from holdfast.store.queries import Query, q
from tests.servers.proxy import Proxy
from tests.store.test_sqlite_store import write_lock


class Watcher:
    def __init__(self, engine: Engine) -> None:
        self.seen: list[tuple[str, bool]] = []
        engine.store.on_query = self

    def __call__(self, query: Query, seconds: float, error: BaseException | None) -> None:
        assert seconds >= 0
        self.seen.append((query.name, error is not None))


async def test_every_query_is_told_of_when_it_has_ended(engine: Engine, worker: str) -> None:
    watcher = Watcher(engine)
    await engine.create(NewJob(type="echo"))
    [lease] = await engine.claim(worker)
    await engine.complete(worker, lease.id, lease.token)
    names = [name for name, _ in watcher.seen]
    assert [name for name in names if name in ("insert_jobs", "claim_jobs", "complete_jobs")] == [
        *("insert_jobs", "claim_jobs", "complete_jobs")
    ]
    assert not any(failed for _, failed in watcher.seen)


async def test_a_query_that_fails_is_told_of_with_its_error(engine: Engine) -> None:
    watcher = Watcher(engine)
    with pytest.raises(HoldfastError):
        await engine.store.read(lambda tx: tx.all(Query("wrong", "SELECT nothing FROM nowhere")))
    assert watcher.seen == [("wrong", True)]


def failures_of(store: Store) -> list[tuple[str, str]]:
    """All that fails from now on: in what, and with which code."""
    seen: list[tuple[str, str]] = []
    store.on_query = lambda query, _, error: seen.append((query.name, error_code(error))) if error else None
    return seen


async def test_a_server_that_is_away_is_told_of_as_connections_that_fail(fresh_postgres_url: str) -> None:
    """R000-57: no query gets so far as to fail, and an outage without a single error would call nobody."""
    async with Proxy.to(fresh_postgres_url) as proxy:
        store = await open_store(proxy.url)
        seen = failures_of(store)
        await proxy.go_away()
        for run in (store.read, store.write):
            with pytest.raises(StoreError):
                await run(lambda tx: tx.all(q.clock))
        await store.close()
    assert seen.count(("connect", "ConnectionRefusedError")) >= 2


async def test_a_commit_that_is_cut_off_is_told_of(fresh_postgres_url: str) -> None:
    async with Proxy.to(fresh_postgres_url) as proxy:
        store = await open_store(proxy.url)
        seen = failures_of(store)
        proxy.cut_at(b"COMMIT", after=True)
        with pytest.raises(StoreError):
            await store.write(lambda tx: tx.all(q.clock))
        await store.close()
    assert [name for name, _ in seen] == ["commit"]


async def test_a_file_that_somebody_else_holds_is_told_of(
    fresh_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.BUSY_SECONDS", 0)
    store = await open_store(fresh_sqlite_url)
    await store.read(lambda tx: tx.all(q.clock))
    seen = failures_of(store)
    with write_lock(tmp_path / "jobs.db"), pytest.raises(StoreError):
        await store.write(lambda tx: tx.all(q.clock))
    await store.close()
    assert seen == [("begin", "SQLITE_BUSY")]


async def test_nobody_watches_unless_asked_to(engine: Engine) -> None:
    assert engine.store.on_query is None


def test_each_query_names_what_it_does_and_where() -> None:
    """Two labels of a metric: so both come from short, closed lists (SEC-44)."""
    schema = [file.read_text() for file in files("holdfast.store").joinpath("schema/sqlite").iterdir()]
    tables = {"none", "holdfast_migrations", *re.findall(r"CREATE TABLE (\w+)", " ".join(schema))}
    assert [(step.operation, step.table) for step in (CONNECT, BEGIN, COMMIT)] == [
        *(("connect", "none"), ("begin", "none"), ("commit", "none"))
    ]
    for query in q.all():
        assert query.operation in ("select", "insert", "update", "delete"), query.name
        assert query.table in tables, query.name


@pytest.mark.parametrize(
    ("name", "operation", "table"),
    [
        ("claim_jobs", "update", "holdfast_jobs"),
        ("open_lanes", "select", "holdfast_workers"),
        ("insert_jobs", "insert", "holdfast_jobs"),
        ("forget_workers", "delete", "holdfast_workers"),
        ("insert_worker_events", "insert", "holdfast_events"),
        ("next_open_work", "select", "holdfast_jobs"),
        ("clock", "select", "none"),
    ],
)
def test_what_a_query_does_is_what_its_outer_statement_does(name: str, operation: str, table: str) -> None:
    query = getattr(q, name)
    assert (query.operation, query.table) == (operation, table)
