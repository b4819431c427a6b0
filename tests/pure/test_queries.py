"""The loader of queries and the closed set of markers."""

from pathlib import Path

import pytest

from holdfast.store import queries
from holdfast.store.queries import Query, parse, q
from holdfast.store.render import POSTGRES, SQLITE, render

both = pytest.mark.parametrize("dialect", [POSTGRES, SQLITE])


def test_a_file_holds_many_queries_each_with_its_header() -> None:
    first, second = parse(
        "-- Read this first.\n\n"
        "-- name: bury\n-- move: fail\n-- ends: failed\n-- data: error\n-- Why it is so.\n"
        "UPDATE holdfast_jobs\n-- kept\n   SET x = 1\n\n"
        "-- name: born\n-- create\n-- gives: lease\nINSERT INTO holdfast_jobs\n"
    )
    assert first == Query(
        "bury", "UPDATE holdfast_jobs\n-- kept\n   SET x = 1", move="fail", ends="failed", data="error"
    )
    assert second == Query("born", "INSERT INTO holdfast_jobs", create=True, gives="lease")
    assert (first.recorded, second.recorded, Query("look", "SELECT 1").recorded) == (True, True, False)


def test_two_queries_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.sql").write_text("-- name: same\nSELECT 1\n")
    (tmp_path / "two.sql").write_text("-- name: same\nSELECT 2\n")
    with pytest.raises(ValueError, match="two queries are called 'same'"):
        queries.load(tmp_path)


def test_a_query_that_does_not_exist_is_named() -> None:
    with pytest.raises(AttributeError, match="no query is called 'claim_everything'"):
        q.claim_everything  # noqa: B018


@both
@pytest.mark.parametrize(
    "marker", ["{nonsense}", "{nonsense:x}", "{from:explode}", "{to:explode}", "{bit:dead>queued}"]
)
def test_an_unknown_marker_is_refused(dialect: str, marker: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        render(Query("odd", f"SELECT {marker}"), dialect)


@both
def test_a_verb_with_several_ends_must_say_which(dialect: str) -> None:
    with pytest.raises(KeyError, match=r"'fail' can lead to .*; say which"):
        render(Query("odd", "SELECT {to:fail}"), dialect)


@both
def test_a_query_without_the_limit_it_needs_is_refused(dialect: str) -> None:
    with pytest.raises(TypeError, match="query odd needs a limit"):
        render(Query("odd", "SELECT 1 LIMIT {limit}"), dialect)


@both
def test_states_are_literals_so_that_partial_indexes_are_used(dialect: str) -> None:
    query = Query(
        "odd", "{from:claim} {from:complete} {to:claim} {to:fail>dead} {from:cancel by client} {bit:retrying>running}"
    )
    assert render(query, dialect).text == (
        "IN ('queued', 'retrying') = 'running' 'running' 'dead' IN ('created', 'queued', 'retrying') 4"
    )


def test_postgres_numbers_its_parameters_and_sqlite_names_them() -> None:
    query = Query("odd", "SELECT :b, :a, :b::text, {now+:a}, x::int")
    assert render(query, SQLITE).params == (*render(query, POSTGRES).params[:2], "now")
    assert render(query, POSTGRES).text.startswith("SELECT $1, $2, $1::text,")
    assert render(query, SQLITE).text.startswith("SELECT :b, :a, :b::text,")


def test_timestamps_inside_row_parameters_are_converted() -> None:
    query = Query("odd", "SELECT 1 FROM {rows:fresh(id uuid, run_at timestamptz, n integer, end_at timestamptz)}")
    assert render(query, SQLITE).times == (("fresh", 1), ("fresh", 3))
