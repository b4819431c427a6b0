"""Arrays of UUIDs and texts in one piece: the same values as one by one, and no value that becomes two."""

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.store import PostgresStore
from holdfast.store.array_codecs import encode_uuids, use_codecs

A, B = "0195c2e0-0000-7000-8000-00000000000a", "0195c2e0-0000-7000-8000-00000000000b"

pytestmark = pytest.mark.postgres


@pytest.fixture
async def connection(fresh_postgres_url: str) -> Any:
    opened = await asyncpg.connect(fresh_postgres_url)
    await use_codecs(opened)
    yield opened
    await opened.close()


@pytest.mark.parametrize("uuids", [[], [A], [A, B], [None, A], [None], (B, A), [UUID(A), B]])
async def test_an_array_comes_back_as_it_was_sent(connection: Any, uuids: Any) -> None:
    sent = [None if each is None else str(each) for each in uuids]
    assert await connection.fetchval("SELECT $1::uuid[]", uuids) == sent
    assert [row[0] for row in await connection.fetch("SELECT * FROM unnest($1::uuid[])", uuids)] == sent


async def test_a_missing_array_is_null(connection: Any) -> None:
    assert await connection.fetchval("SELECT $1::uuid[] IS NULL", None)


@pytest.mark.parametrize(
    "text",
    [f"{A},{B}", f"{A},NULL", ",", "", "{", "}", '"', "\\", f'{A}"', f"{{{A}}},{B}", "x", f"{A[:24]},       0000"],
)
async def test_what_is_no_uuid_is_refused_and_does_not_become_two(connection: Any, text: str) -> None:
    for uuids in ([text], [A, text], [text, A]):
        with pytest.raises(asyncpg.DataError):
            await connection.fetch("SELECT * FROM unnest($1::uuid[])", uuids)


@pytest.mark.parametrize("texts", [[], ["a"], ["", "NULL", None, '"', "{}", ",", "\\"], ("ä", "日本"), [None]])
async def test_an_array_of_texts_comes_back_as_it_was_sent(connection: Any, texts: Any) -> None:
    assert await connection.fetchval("SELECT $1::text[]", texts) == list(texts)
    assert [row[0] for row in await connection.fetch("SELECT * FROM unnest($1::text[])", texts)] == list(texts)


@pytest.mark.parametrize(
    "array",
    [
        "ARRAY[['a', 'b', NULL], ['', 'ä', 'c']]",
        "ARRAY[[['a'], ['b']], [['c'], ['d']], [['e'], [NULL]]]",
        "ARRAY[['a']]",
        "'[5:6][0:0]={{a},{b}}'::text[]",
        "ARRAY[ARRAY[]::text[]]",
        "array_fill('a'::text, ARRAY[2, 2, 2, 2, 2, 2])",
    ],
)
async def test_arrays_of_several_dimensions_are_lists_of_lists_as_from_the_driver(
    connection: Any, fresh_postgres_url: str, array: str
) -> None:
    plain = await asyncpg.connect(fresh_postgres_url)
    try:
        assert await connection.fetchval(f"SELECT {array}") == await plain.fetchval(f"SELECT {array}")
    finally:
        await plain.close()


async def test_uuids_in_two_dimensions_are_lists_of_lists(connection: Any) -> None:
    found = await connection.fetchval(f"SELECT '{{{{{A}, {B}}}, {{{B}, NULL}}}}'::uuid[]")
    assert found == [[A, B], [B, None]]


@pytest.mark.parametrize("texts", ["ab", ["a", 1], ["\ud800"]])
async def test_what_is_no_list_of_texts_is_refused(connection: Any, texts: Any) -> None:
    with pytest.raises(asyncpg.DataError):
        await connection.fetch("SELECT * FROM unnest($1::text[])", texts)


@pytest.mark.parametrize(
    "uuids",
    [
        [f"{A},{B}"],
        [A[:-1], f"{B}0"],
        [f"{A[:-1]} ", B],
        [A.replace("-", "0", 1), B],
        [f"{A}00000010", B[8:]],
        [f"{A}-", B.replace("-", "", 1)[1:]],
    ],
)
def test_items_that_are_no_uuids_do_not_become_others(uuids: list[str]) -> None:
    with pytest.raises(ValueError, match=r"UUID|non-hexadecimal"):
        encode_uuids(uuids)


def test_uuids_of_the_usual_form_and_others_are_encoded_alike() -> None:
    assert encode_uuids([A, B]) == encode_uuids([UUID(A), B.upper()])


async def test_the_store_sends_arrays_in_one_piece(fresh_postgres_url: str) -> None:
    """Were this codec lost in a new version of the driver, each id would cost a microsecond more."""
    store, looked_at = await PostgresStore.open(fresh_postgres_url, Clock(), Ids()), list[int]()

    class Watched(list[str]):
        def __iter__(self) -> Any:
            looked_at.append(len(self))
            return super().__iter__()

    try:
        connection = await store._connections.acquire()
        assert await connection.fetchval("SELECT cardinality($1::uuid[])", Watched([A, B])) == 2
        store._connections.release(connection)
    finally:
        await store.close()
    assert looked_at == [2], "the driver itself goes through an array twice, first for its dimensions"
