"""Ids as a person types them: whole, or as much of the beginning as tells it apart from the others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, NotFound
from holdfast.ids import is_uuid
from holdfast.model.names import quoted

if TYPE_CHECKING:
    from holdfast.engine import Engine

LEAST = 4  # characters: fewer are a typing mistake
LISTED = 5

_BEGINNING = re.compile(r"[0-9a-f-]+")


def begins(whole: str, typed: str) -> bool:
    return len(typed) >= LEAST and whole.startswith((typed, typed.lower()))


def ambiguous(what: str, typed: str, candidates: list[str]) -> Conflict:
    listed = ", ".join(candidates[:LISTED]) + (", ..." if len(candidates) > LISTED else "")
    return Conflict(f"more than one {what} begins with {quoted(typed)}: {listed}", code="ambiguous_id")


async def job_id(engine: Engine, typed: str) -> str:
    """The id of the one job that is meant."""
    if is_uuid(typed):
        return typed
    beginning = typed.lower().rstrip("…")
    found: list[str] = []
    if len(beginning) >= LEAST and _BEGINNING.fullmatch(beginning):
        found = await engine.reads.ids_beginning(beginning, limit=LISTED + 1)
    if not found:
        raise NotFound(f"no job {quoted(typed)}", code="job_not_found", job_id=typed)
    if len(found) > 1:
        raise ambiguous("job", typed, found)
    return found[0]


async def job_ids(engine: Engine, typed: list[str]) -> list[str]:
    """Those that are not found stay as they were typed: each of them is answered by itself."""
    found = []
    for each in typed:
        try:
            found.append(await job_id(engine, each))
        except NotFound:
            found.append(each)
    return found
