"""Health of the whole system, in one cheap query."""

from __future__ import annotations

from datetime import datetime
from functools import cache

import msgspec

from holdfast.store import Tx, q
from holdfast.store.migrate import migrations

COUNTED_MAX = 10_000
DIED_WITHIN_SECONDS = 3600.0


class SystemHealth(msgspec.Struct, frozen=True):
    """Jobs are counted up to `COUNTED_MAX` of each kind. `later`: delayed. `died`: dead in the last hour.

    `maintaining`: the worker processes that share maintenance with the servers.
    """

    seen_at: datetime
    current: bool  # the database has all migrations of this version
    workers: int
    created: int
    waiting: int
    later: int
    running: int
    died: int
    maintaining: int = 0

    @property
    def pending(self) -> int:
        return self.created + self.waiting + self.later


async def health(tx: Tx, dialect: str) -> SystemHealth:
    [row] = await tx.all(q.health, limit=COUNTED_MAX, seconds=DIED_WITHIN_SECONDS)
    numbers = {name: row[name] for name in ("workers", "created", "waiting", "later", "running", "died", "maintaining")}
    return SystemHealth(seen_at=row["seen_at"], current=row["migrations"] >= _known(dialect), **numbers)


@cache
def _known(dialect: str) -> int:
    return len(migrations(dialect))
