"""How much of each limit is in use, for `holdfast top` and the metrics of servers."""

from __future__ import annotations

import msgspec

from holdfast.model.limits import is_for_each_key
from holdfast.store import Row, Tx, q

READ_MAX = 100_000  # limits; those of all keys of a type are one, and those of tenants beyond it are left out


class LimitUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A limit in force. `used`: the units that running jobs hold, of all keys together if it is for each key.
    `concurrency`, `rate`: as configured. `tokens`: the units that may start now. `full`: whether all units are in use,
    or how many keys that is so of."""

    used: int = 0
    concurrency: int | None = None
    rate: float | None = None
    tokens: float | None = None
    full: int = 0

    def __add__(self, other: LimitUse) -> LimitUse:
        """Of different limits, so what is configured is left out."""
        return LimitUse(used=self.used + other.used, full=self.full + other.full)


async def limit_use(tx: Tx, *, limit: int = READ_MAX) -> dict[str, LimitUse]:
    """By name, first those of which most units are in use. All keys of a type are one, `key:TYPE`."""
    in_force = await tx.all(q.limits_in_force, limit=limit)
    held = {row["name"]: row for row in await tx.all(q.units_in_use)} if in_force else {}
    found = {row["name"]: _use(row, held.get(row["name"])) for row in in_force}
    return dict(sorted(found.items(), key=lambda one: -one[1].used))


def _use(row: Row, held: Row | None) -> LimitUse:
    concurrency, tokens = row["concurrency"], row["tokens"]
    used, full = (0, 0) if held is None else (int(held["used"]), held["full_buckets"])
    if is_for_each_key(row["name"]):
        tokens = None
    elif concurrency == 0:  # without a job that holds a unit
        full = 1
    return LimitUse(used, concurrency, row["rate"], tokens, full)
