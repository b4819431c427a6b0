"""A hint that a queue has a job to claim. Hints may be lost; the database is authoritative."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

HINTS_MAX = 64  # per queue and type in one commit: each wakes a worker, which takes many jobs


class Hint(NamedTuple):
    queue: str
    type: str | None = None  # None: of any type
    job: str | None = None  # None: the queue as a whole
    priority: int = 0


def hints_of(rows: Iterable[Any]) -> list[Hint]:
    """Hints for jobs that can be claimed now or soon; at most HINTS_MAX of a kind."""
    found: list[Hint] = []
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        kind = (row["queue"], row["type"])
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= HINTS_MAX:
            found.append(Hint(*kind, str(row["id"]), row["priority"]))
    return found
