"""The query observer of a store gets every query with its duration and its error."""

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


class RecordingObserver:
    def __init__(self, engine: Engine) -> None:
        self.seen: list[tuple[str, bool]] = []
        engine.store.on_query = self

    def __call__(self, query: Query, seconds: float, error: BaseException | None) -> None:
        assert seconds >= 0
        self.seen.append((query.name, error is not None))


async def test_the_observer_gets_every_query_after_it_ended(engine: Engine, worker: str) -> None:
    observer = RecordingObserver(engine)
    await engine.create(NewJob(type="echo"))
    [lease] = await engine.claim(worker)
    await engine.complete(worker, lease.id, lease.token)
    names = [name for name, _ in observer.seen]
    insert = "insert_plain_job" if engine.store.dialect == "sqlite" else "insert_plain_jobs"
    assert [name for name in names if name in (insert, "claim_jobs", "complete_jobs")] == [
        *(insert, "claim_jobs", "complete_jobs")
    ]
    assert not any(failed for _, failed in observer.seen)


async def test_the_observer_gets_the_error_of_a_failed_query(engine: Engine) -> None:
    observer = RecordingObserver(engine)
    with pytest.raises(HoldfastError):
        await engine.store.read(lambda tx: tx.all(Query("wrong", "SELECT nothing FROM nowhere")))
    assert observer.seen == [("wrong", True)]


def failures_of(store: Store) -> list[tuple[str, str]]:
    """The failures from now on: query name and error code."""
    seen: list[tuple[str, str]] = []
    store.on_query = lambda query, _, error: seen.append((query.name, error_code(error))) if error else None
    return seen


async def test_the_observer_gets_failed_connects_during_an_outage(fresh_postgres_url: str) -> None:
    """R000-57: no query runs at all, and an outage without an error would raise no alert."""
    async with Proxy.to(fresh_postgres_url) as proxy:
        store = await open_store(proxy.url)
        seen = failures_of(store)
        await proxy.go_away()
        for run in (store.read, store.write):
            with pytest.raises(StoreError):
                await run(lambda tx: tx.all(q.clock))
        await store.close()
    assert seen.count(("connect", "ConnectionRefusedError")) >= 2


async def test_the_observer_gets_a_commit_that_lost_its_connection(fresh_postgres_url: str) -> None:
    async with Proxy.to(fresh_postgres_url) as proxy:
        store = await open_store(proxy.url)
        seen = failures_of(store)
        proxy.cut_at(b"COMMIT", after=True)
        with pytest.raises(StoreError):
            await store.write(lambda tx: tx.all(q.clock))
        await store.close()
    assert [name for name, _ in seen] == ["commit"]


async def test_the_observer_gets_a_lock_timeout_of_a_sqlite_file(
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


async def test_a_store_has_no_observer_by_default(engine: Engine) -> None:
    assert engine.store.on_query is None


def test_each_query_has_an_operation_and_a_table() -> None:
    """Both are metric labels, so both come from short, closed lists (SEC-44)."""
    schema = [file.read_text() for file in files("holdfast.store").joinpath("schema/sqlite").iterdir()]
    tables = {"none", "holdfast_migrations", *re.findall(r"CREATE (?:TABLE|VIEW) (\w+)", " ".join(schema))}
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
        ("held_by_worker", "select", "holdfast_running"),
        ("clock", "select", "none"),
    ],
)
def test_the_operation_of_a_query_is_that_of_its_outer_statement(name: str, operation: str, table: str) -> None:
    query = getattr(q, name)
    assert (query.operation, query.table) == (operation, table)
