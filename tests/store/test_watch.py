"""Whoever watches a store is told of every query: which it was, how long it took, what it failed with."""

import re
from importlib.resources import files

import pytest

from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.model import NewJob
from holdfast.store.queries import Query, q


class Watcher:
    def __init__(self, engine: Engine) -> None:
        self.seen: list[tuple[str, bool]] = []
        engine.store.watch = self

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


async def test_nobody_watches_unless_asked_to(engine: Engine) -> None:
    assert engine.store.watch is None


def test_each_query_names_what_it_does_and_where() -> None:
    """Two labels of a metric: so both come from short, closed lists (SEC-44)."""
    schema = [file.read_text() for file in files("holdfast.store").joinpath("schema/sqlite").iterdir()]
    tables = {"none", "holdfast_migrations", *re.findall(r"CREATE TABLE (\w+)", " ".join(schema))}
    for query in q.all():
        assert query.operation in ("select", "insert", "update", "delete"), query.name
        assert query.table in tables, query.name


@pytest.mark.parametrize(
    ("name", "operation", "table"),
    [
        ("claim_jobs", "update", "jobs"),
        ("open_lanes", "select", "workers"),
        ("insert_jobs", "insert", "jobs"),
        ("forget_workers", "delete", "workers"),
        ("say_workers", "insert", "events"),
        ("not_yet_open", "select", "jobs"),
        ("clock", "select", "none"),
    ],
)
def test_what_a_query_does_is_what_its_outer_statement_does(name: str, operation: str, table: str) -> None:
    query = getattr(q, name)
    assert (query.operation, query.table) == (operation, table)
