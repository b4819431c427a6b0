"""UUIDs as text on connections of asyncpg, and arrays of them in one piece.

asyncpg encodes the items of an array one by one, at a microsecond each; most arrays here are of ids and tokens.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import asyncpg

_ARRAY_OID = 2951  # of uuid[]
_LENGTH = 37  # of a UUID as text, and a comma


async def use_text_uuids(connection: asyncpg.Connection[Any]) -> None:
    # `set_type_codec` has no codecs of arrays; it ends with the same call.
    settings = connection._protocol.get_settings()  # type: ignore[attr-defined]
    settings.add_python_codec(_ARRAY_OID, "_uuid", "pg_catalog", [], "scalar", encode_uuids, decode_uuids, "text")
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")


def encode_uuids(uuids: Collection[Any]) -> str:
    try:
        text = ",".join(uuids)
    except TypeError:  # some are None, or no strings
        text = ""
    count = len(uuids)
    if count and (len(text) != count * _LENGTH - 1 or text.count(",") != count - 1):
        text = ",".join(map(_item, uuids))  # what is no UUID stays one item, and PostgreSQL refuses it
    return "{" + text + "}"


def _item(uuid: Any) -> str:
    if uuid is None:
        return "NULL"
    quoted = str(uuid).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def decode_uuids(text: str) -> list[str | None]:
    return [None if item == "NULL" else item for item in text[1:-1].split(",")] if text != "{}" else []
