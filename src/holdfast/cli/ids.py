"""Resolves ids as typed: complete, or a unique prefix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, NotFound
from holdfast.ids import is_uuid
from holdfast.model.names import quoted

if TYPE_CHECKING:
    from holdfast.engine import Engine

PREFIX_CHARS_MIN = 4  # characters of a prefix
LISTED = 5

_PREFIX = re.compile(r"[0-9a-f-]+")


def is_prefix(whole: str, typed: str) -> bool:
    return len(typed) >= PREFIX_CHARS_MIN and whole.startswith((typed, typed.lower()))


def ambiguous(what: str, typed: str, candidates: list[str]) -> Conflict:
    listed = ", ".join(candidates[:LISTED]) + (", ..." if len(candidates) > LISTED else "")
    return Conflict(f"more than one {what} starts with {quoted(typed)}: {listed}", code="ambiguous_id")


async def job_id(engine: Engine, typed: str) -> str:
    """The id of the job with this id or id prefix."""
    if is_uuid(typed):
        return typed
    prefix = typed.lower().rstrip("…")
    found: list[str] = []
    if len(prefix) >= PREFIX_CHARS_MIN and _PREFIX.fullmatch(prefix):
        found = await engine.reads.ids_beginning(prefix, limit=LISTED + 1)
    if not found:
        raise NotFound(f"no job {quoted(typed)}", code="job_not_found", job_id=typed)
    if len(found) > 1:
        raise ambiguous("job", typed, found)
    return found[0]


async def job_ids(engine: Engine, typed: list[str]) -> list[str]:
    """Ids that are not found stay as typed: the result of the command lists each of them."""
    found = []
    for each in typed:
        try:
            found.append(await job_id(engine, each))
        except NotFound:
            found.append(each)
    return found
