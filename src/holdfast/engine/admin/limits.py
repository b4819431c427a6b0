"""Limits as apps declare them and operators set them, and the weights of tenants.

What an operator sets stays until it is reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.engine.admin.audit import audited
from holdfast.engine.context import EngineContext
from holdfast.engine.lanes import KEY_LANES_BEGIN
from holdfast.errors import InvalidField, NotFound
from holdfast.model import JobType
from holdfast.model.limits import SCOPES, TENANT, Limit, check_limit_name, check_weight
from holdfast.model.names import check_name
from holdfast.store import Row, Tx, q

RECOUNTED_SECONDS = 60.0  # after a limit was set
LOOKED_AT_MAX = 2000  # keyed lanes that one round of maintenance looks at


class LimitView(msgspec.Struct, frozen=True):
    """A limit in force. `used`: the units that running jobs hold, except of a limit for each key. `declared`: what the
    app declares; `set_by`: the operator who set something else. `weight`: of a tenant, its share of claims beside other
    tenants; a tenant that has only a weight has no limit, and no time of a change."""

    name: str
    limit: Limit
    used: int
    declared: Limit | None
    set_by: str | None
    updated_at: datetime | None
    weight: int | None = None


def limits_of_type(declared: JobType) -> dict[str, Limit | None]:
    return {f"type:{declared.name}": declared.limits.of_type, f"key:{declared.name}": declared.limits.of_key}


async def declare_limits(tx: Tx, limits: Mapping[str, Limit | None]) -> None:
    """Store what an app declares; None: it declares no such limit. Values that an operator has set stay in force."""
    for name, limit in limits.items():
        row = await tx.one(q.lock_limit, name=name)
        if limit == (None if row is None else _declared(row)):
            continue
        if row is not None and row["set_by"] is not None:
            await _put(tx, name, _limit(row), limit, set_by=row["set_by"])
        else:
            await _apply(tx, name, limit, limit)


async def listed(tx: Tx) -> list[LimitView]:
    """All limits by name, and the tenants that have a weight other than 1."""
    weights = {f"{TENANT}{row['name']}": row["weight"] for row in await tx.all(q.weights)}
    views = {row["name"]: _view(row, weights) for row in await tx.all(q.limits)}
    weighted = {name: _weight_alone(name, weight) for name, weight in weights.items()}
    return [view for _, view in sorted((weighted | views).items())]


async def set_limit(tx: Tx, name: str, limit: Limit | None, *, by: str, weight: int | None = None) -> LimitView | None:
    """Set a limit at run time, or lift it (None). It is in force from the next claim on, also for jobs that wait.

    `weight`: that of a tenant; None: it stays.
    """
    _check_change(name, weight, by)
    row = await tx.one(q.lock_limit, name=name)
    if row is not None or limit is not None:
        declared = None if row is None else _declared(row)
        lifted = Limit() if limit is None and declared is not None else limit
        await _apply(tx, name, lifted, declared, set_by=by)
    elif weight is None:
        raise _unknown(name)
    if weight is not None:
        await _set_weight(tx, name, weight)
    return await _changed(tx, name, by, {} if limit is None else msgspec.to_builtins(limit), weight)


async def change_limit(
    tx: Tx, name: str, *, by: str, concurrency: Any = UNSET, rate: Any = UNSET, burst: Any = UNSET, weight: Any = UNSET
) -> LimitView | None:
    """Set `concurrency`, `rate`, `burst` or `weight`, as a user gives them; None lifts that part. What is not given
    stays as it is in force."""
    share = None if weight is UNSET else 1 if weight is None else weight
    _check_change(name, share, by)
    given = {"concurrency": concurrency, "rate": rate, "burst": burst}
    parts = {part: value for part, value in given.items() if value is not UNSET}
    if parts:
        row = await tx.one(q.lock_limit, name=name)
        in_force = Limit() if row is None else _limit(row)
        return await set_limit(tx, name, in_force.but(**parts), by=by, weight=share)
    if share is None:
        raise InvalidField("nothing to set: give concurrency, rate, burst or weight", field="concurrency")
    await _set_weight(tx, name, share)
    return await _changed(tx, name, by, {}, share)


async def reset_limit(tx: Tx, name: str, *, by: str | None = None) -> LimitView | None:
    """Return to what the app declares; None: it declares no such limit. The weight of a tenant becomes 1."""
    row = await tx.one(q.lock_limit, name=check_limit_name(name))
    weighted = name.startswith(TENANT) and await tx.one(q.set_weight, name=name.removeprefix(TENANT), weight=1)
    if row is not None:
        await _apply(tx, name, _declared(row), _declared(row))
    elif not weighted:
        raise _unknown(name)
    await audited(tx, by, "limit.reset", name)
    return await _one(tx, name)


async def open_full_lanes(tx: Tx, ctx: EngineContext) -> int:
    """Give a turn to keyed lanes whose limit has units again: a claim may have found it full while they were freed.

    Each call looks at the next of them, and after the last one begins again.
    """
    after = ctx.lane_cursors.full
    if (last := await _last_key_lane(tx, after)) is None:
        after = KEY_LANES_BEGIN
        last = await _last_key_lane(tx, after)
    ctx.lane_cursors.full = KEY_LANES_BEGIN if last is None else last
    return 0 if last is None else len(await tx.all(q.open_full_lanes, after=after, last=last))


async def _last_key_lane(tx: Tx, after: int) -> int | None:
    row = await tx.one(q.last_key_lane, after=after, limit=LOOKED_AT_MAX)
    return None if row is None else row["last"]


async def recount(tx: Tx) -> int:
    """Count the running jobs of limits that were set a moment ago again: a claim that was open then did not see it."""
    changed = await tx.all(q.changed_limits, seconds=RECOUNTED_SECONDS)
    for row in changed:
        await _count_running(tx, row["name"])
    return len(changed)


async def prune_tokens(tx: Tx, ctx: EngineContext) -> int:
    return len(await tx.all(q.prune_tokens, limit=ctx.limits.sweep_batch))


async def _apply(tx: Tx, name: str, limit: Limit | None, declared: Limit | None, *, set_by: str | None = None) -> None:
    if limit is None:
        await tx.one(q.drop_limit, name=name)
    else:
        await _put(tx, name, limit, declared, set_by=set_by)
        await _count_running(tx, name)
    await tx.all(q.refill_tokens, name=name)
    await tx.all(q.open_changed_lanes, name=name)


async def _put(tx: Tx, name: str, limit: Limit, declared: Limit | None, *, set_by: str | None) -> None:
    text = None if declared is None else msgspec.json.encode(declared).decode()
    await tx.one(q.put_limit, name=name, **msgspec.structs.asdict(limit), declared=text, set_by=set_by)


async def _count_running(tx: Tx, name: str) -> None:
    """Jobs that run already count from now on."""
    scope, colon, about = name.partition(":")
    kind = scope if colon and scope in SCOPES else "name"
    running = await tx.all(q.mark_limited, kind=kind, name=name, about=about)
    if running:
        await tx.all(q.count_running, kind=kind, name=name, ids=[row["id"] for row in running])


def _check_change(name: str, weight: Any, by: str) -> None:
    check_limit_name(name)
    check_name(by, "set_by")
    if weight is not None:
        check_weight(name, weight)


async def _set_weight(tx: Tx, name: str, weight: int) -> None:
    """A tenant may have a weight before it has jobs."""
    tenant = name.removeprefix(TENANT)
    if await tx.one(q.set_weight, name=tenant, weight=weight) is None and weight != 1:
        await tx.one(q.put_tenant, name=tenant)
        await tx.one(q.set_weight, name=tenant, weight=weight)


async def _changed(tx: Tx, name: str, by: str, detail: dict[str, Any], weight: int | None) -> LimitView | None:
    await audited(tx, by, "limit.set", name, detail if weight is None else {**detail, "weight": weight})
    return await _one(tx, name)


async def _one(tx: Tx, name: str) -> LimitView | None:
    return next((view for view in await listed(tx) if view.name == name), None)


def _view(row: Row, weights: Mapping[str, int]) -> LimitView:
    weight = weights.get(row["name"], 1) if row["name"].startswith(TENANT) else None
    return LimitView(row["name"], _limit(row), row["used"], _declared(row), row["set_by"], row["updated_at"], weight)


def _weight_alone(name: str, weight: int) -> LimitView:
    return LimitView(name, Limit(), 0, None, None, None, weight)


def _limit(row: Row) -> Limit:
    return Limit(row["concurrency"], row["rate"], row["burst"])


def _declared(row: Row) -> Limit | None:
    return None if row["declared"] is None else msgspec.json.decode(row["declared"], type=Limit)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no limit {name!r}; holdfast limits list shows all", code="limit_not_found")
