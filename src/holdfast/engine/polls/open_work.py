"""Lanes with claimable jobs, read once for all long polls of a server."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.polls.claimable import next_in
from holdfast.model.json import decode
from holdfast.store import Row, Tx, q

LANES_MAX = 1000
READY_MAX = 100  # also in the query


class OpenLane(msgspec.Struct, frozen=True):
    """A lane with due jobs. `ready`: their number, counted up to `READY_MAX`."""

    tenant: str
    queue: str
    type: str
    requires: frozenset[str]
    prefers: frozenset[str]
    ready: int


class OpenWork(msgspec.Struct, frozen=True):
    """`next_in`: seconds until the first delayed job is ripe, or a limit has tokens again. `lost`: a lease has
    expired."""

    lanes: list[OpenLane]
    next_in: float | None
    lost: bool


class Claimant(msgspec.Struct, frozen=True):
    """The tenants and capabilities of a worker that may claim."""

    tenants: frozenset[str] | None
    offers: frozenset[str]

    def may_take(self, opening: OpenLane) -> bool:
        return (self.tenants is None or opening.tenant in self.tenants) and opening.requires <= self.offers


async def open_work(
    tx: Tx, ctx: EngineContext, queues: list[str] | None = None, types: list[str] | None = None
) -> OpenWork:
    asked: dict[str, Any] = {"queues": queues, "types": types, "limit": LANES_MAX}
    lanes = [*await tx.all(ctx.mine(q.open_work), **asked), *await tx.all(q.open_key_work, **asked)]
    later = await tx.one(ctx.mine(q.next_open_work), **asked)
    assert later is not None  # noqa: S101
    return OpenWork(
        [_opening(lane) for lane in lanes],
        next_in=next_in(later),
        lost=bool(later["lost"]),
    )


def _opening(row: Row) -> OpenLane:
    return OpenLane(
        tenant=row["tenant"],
        queue=row["queue"],
        type=row["type"],
        requires=_names(row["requires"]),
        prefers=_names(row["prefers"]),
        ready=row["ready"],
    )


async def claimants(tx: Tx, workers: list[str]) -> dict[str, Claimant]:
    """The given workers that may claim."""
    return {
        row["id"]: Claimant(None if row["tenants"] is None else _names(row["tenants"]), _names(row["offers"]))
        for row in await tx.all(q.enabled_workers, ids=workers)
    }


def _names(listed: str) -> frozenset[str]:
    return frozenset(decode(listed))
