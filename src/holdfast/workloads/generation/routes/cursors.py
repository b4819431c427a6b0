"""Cursors of lists: the id that the next page comes after."""

import re

from holdfast.errors import Invalid

LAST = "g"  # behind every id, in every collation
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def before_id(cursor: str | None) -> str:
    if cursor is not None and not ID.fullmatch(cursor):
        raise invalid_cursor()
    return cursor or LAST


def before_seq(cursor: str | None) -> int:
    if cursor is None:
        return 2**63 - 1
    if not re.fullmatch(r"[0-9]{1,18}", cursor):
        raise invalid_cursor()
    return int(cursor)


def invalid_cursor() -> Invalid:
    return Invalid("the cursor is not from a page of this list: use `nextCursor` as it is", code="invalid_cursor")
