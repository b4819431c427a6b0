"""Every query is prepared on both databases: the same parameters, the same columns in the answer."""

import re
import sqlite3
from itertools import chain
from typing import Any

import asyncpg
import pytest

from holdfast.store import open_store
from holdfast.store.queries import Query, q
from holdfast.store.render import FILTERS, POSTGRES, SQLITE, Statement, columns_of, render

LISTS = re.compile(r"\{(?:rows|in|any|each):(\w+)")


def filters_of(query: Query) -> tuple[str, ...]:
    return tuple(FILTERS) if "{filters}" in query.text else ()


def rendered(query: Query, dialect: str) -> Statement:
    return render(query, dialect, 1, filters_of(query))


def parameters(query: Query, dialect: str) -> set[str]:
    """What the engine must give. On SQLite the actor goes into the history by a statement of its own."""
    return {name.partition(".")[0] for name in rendered(query, dialect).params} - {"now", "actor"}


def columns_on_sqlite(connection: sqlite3.Connection, query: Query) -> list[str]:
    """SQLite names its columns only when it runs: lists are empty, everything else is a harmless 1."""
    lists = {*LISTS.findall(query.text), *LISTS.findall(" ".join(FILTERS.values()))}
    statement = rendered(query, SQLITE)
    values: dict[str, Any] = {name: "[]" if name in lists else "1" for name in statement.params}
    connection.execute("BEGIN")
    try:
        return [column[0] for column in connection.execute(statement.text, values).description]
    finally:
        connection.execute("ROLLBACK")


async def test_every_query_returns_the_same_columns_on_both_databases(
    postgres: asyncpg.Connection, sqlite: sqlite3.Connection
) -> None:
    forms = [(query, query.minimal, query.observed) if query.recorded else (query,) for query in q.all()]
    forms += [(query.with_hooks(("notes", "billing")),) for query in q.all() if "{mine" in query.text]
    for query in chain.from_iterable(forms):
        prepared = await postgres.prepare(rendered(query, POSTGRES).text)
        on_postgres = [attribute.name for attribute in prepared.get_attributes()]
        if query.values:  # without RETURNING on SQLite: the row is known
            assert "RETURNING" not in rendered(query, SQLITE).text, query.name
            continue
        on_sqlite = columns_on_sqlite(sqlite, query)
        if query.recorded:  # SQLite also hands over what the history needs, behind what the engine sees
            assert on_postgres == list(columns_of(query)), query.name
            on_sqlite = on_sqlite[: len(on_postgres)]
        assert on_sqlite == on_postgres, query.name
        assert on_postgres, f"{query.name} answers with nothing"


def test_every_statement_that_moves_or_deletes_jobs_checks_their_hooks() -> None:
    moving = [query for query in q.all() if query.move or re.search(r"DELETE FROM holdfast_jobs\b", query.text)]
    assert len(moving) > 15
    for query in moving:
        assert "needs IS NULL" in rendered(query, POSTGRES).text, query.name
        assert "needs IS NULL" in rendered(query, SQLITE).text, query.name


async def test_every_query_has_a_single_row_form(postgres: asyncpg.Connection) -> None:
    with_tables = [query for query in q.all() if query.tables]
    assert len(with_tables) > 10
    for query in with_tables:
        prepared = await postgres.prepare(rendered(query.for_one, POSTGRES).text)
        many = await postgres.prepare(rendered(query, POSTGRES).text)
        assert prepared.get_attributes() == many.get_attributes(), query.name
        assert parameters(query.for_one, POSTGRES) == parameters(query, POSTGRES), query.name


def test_every_query_takes_the_same_parameters_on_both_databases() -> None:
    assert len(q.all()) > 50
    for query in q.all():
        assert parameters(query, POSTGRES) == parameters(query, SQLITE), query.name


def test_no_marker_is_left_in_any_query() -> None:
    for query in q.all():
        for dialect in (POSTGRES, SQLITE):
            assert not re.search(r"[{}]", re.sub(r"'[^']*'", "", rendered(query, dialect).text)), query.name


async def test_a_missing_argument_is_named(store_url: str) -> None:
    store = await open_store(store_url)
    try:
        with pytest.raises(TypeError, match=r"query job needs \['id'\]"):
            await store.read(lambda tx: tx.all(q.job))
    finally:
        await store.close()
