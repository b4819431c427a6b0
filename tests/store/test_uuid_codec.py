"""Arrays of UUIDs in one piece: the same values as one by one, and no value that becomes two."""

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.store import PostgresStore
from holdfast.store.uuid_codec import encode_uuids, use_text_uuids

A, B = "0195c2e0-0000-7000-8000-00000000000a", "0195c2e0-0000-7000-8000-00000000000b"

pytestmark = pytest.mark.postgres


@pytest.fixture
async def connection(fresh_postgres_url: str) -> Any:
    opened = await asyncpg.connect(fresh_postgres_url)
    await use_text_uuids(opened)
    yield opened
    await opened.close()


@pytest.mark.parametrize("uuids", [[], [A], [A, B], [None, A], [None], (B, A), [UUID(A), B]])
async def test_an_array_comes_back_as_it_was_sent(connection: Any, uuids: Any) -> None:
    sent = [None if each is None else str(each) for each in uuids]
    assert await connection.fetchval("SELECT $1::uuid[]", uuids) == sent
    assert [row[0] for row in await connection.fetch("SELECT * FROM unnest($1::uuid[])", uuids)] == sent


async def test_a_missing_array_is_null(connection: Any) -> None:
    assert await connection.fetchval("SELECT $1::uuid[] IS NULL", None)


@pytest.mark.parametrize("text", [f"{A},{B}", f"{A},NULL", ",", "", "{", "}", '"', "\\", f'{A}"', f"{{{A}}},{B}", "x"])
async def test_what_is_no_uuid_is_refused_and_does_not_become_two(connection: Any, text: str) -> None:
    for uuids in ([text], [A, text], [text, A]):
        with pytest.raises(asyncpg.DataError):
            await connection.fetch("SELECT * FROM unnest($1::uuid[])", uuids)


def test_a_comma_is_quoted() -> None:
    assert encode_uuids([f"{A},{B}"]) == f'{{"{A},{B}"}}'
    assert encode_uuids([A, B]) == f"{{{A},{B}}}"


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
