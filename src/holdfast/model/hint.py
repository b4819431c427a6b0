"""A hint: somebody should look at this queue, because of this job. The database knows what is true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

HINTS_MAX = 64  # of a queue and type in one commit: each wakes a worker, and whoever wakes takes many jobs


class Hint(NamedTuple):
    queue: str
    type: str | None = None  # None: of any type
    job: str | None = None  # None: the queue as a whole
    priority: int = 0


def hints_of(rows: Iterable[Any]) -> list[Hint]:
    """Of jobs that can be claimed now, or soon; of many of a kind, a few."""
    found: list[Hint] = []
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        kind = (row["queue"], row["type"])
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= HINTS_MAX:
            found.append(Hint(*kind, str(row["id"]), row["priority"]))
    return found
