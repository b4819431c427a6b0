"""Claims from lanes with limits or keys. While a claim counts the units of a limit, no other claim does.

The lock is on the bucket, and held until the commit. A claim that does not get it leaves the lane to the other one: it
never waits. Jobs that are no longer running free their units without the lock, so a count can only be too high.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.hooks.claim import Wanted
from holdfast.model.limits import Limit
from holdfast.store import Row, Tx, q
from holdfast.store.render.limits import LIMITED_BY, ROUNDING

LaneShare = tuple[Row, Wanted]
TakeShares = Callable[[Tx, EngineContext, Sequence[LaneShare], dict[str, Any]], Awaitable[list[Row]]]
LANES_MAX = 64  # in one transaction: it locks each bucket
NEVER_SECONDS = 10 * 365 * 86_400.0  # a time that can be added to any other


class Taken(NamedTuple):
    """`busy`: buckets that other claims were counting. `more`: some lanes were not looked at, or have lost their turn
    without a job, and others may follow. `lanes`: those whose turn it was."""

    rows: list[Row]
    busy: frozenset[str] = frozenset()
    more: bool = False
    lanes: Set[int] = frozenset()


@dataclass
class LimitBucket:
    """A limit, or one key of it: the units that running jobs and this claim take, and the tokens that are left."""

    name: str
    limit: Limit
    locked: bool
    used: int = 0
    tokens: float = 0.0
    counted_at: Any = None

    @property
    def rounding(self) -> float:
        """Of tokens: times are rounded to microseconds."""
        return ROUNDING * (1 + (self.limit.rate or 0))

    def needed(self, units: int) -> float:
        """Tokens that must be there for a job. One that takes more than the burst waits for all of it, and leaves a
        debt, so that the rate holds in the long run."""
        return min(units, self.limit.burst or units)

    def room(self, units: int) -> int | None:
        """For how many jobs it has units left; None: for any number."""
        at_once = None if self.limit.concurrency is None else (self.limit.concurrency - self.used) // units
        spare = self.tokens + self.rounding - self.needed(units)
        in_time = None if self.limit.rate is None else int(spare // units) + 1
        most = min((jobs for jobs in (at_once, in_time) if jobs is not None), default=None)
        return None if most is None else max(0, most)

    def take(self, units: int, jobs: int) -> None:
        self.used += units * jobs
        self.tokens -= units * jobs

    def seconds_until(self, units: int) -> float:
        """Until it has tokens for a job."""
        missing = 0.0 if self.limit.rate is None else self.needed(units) - self.tokens
        if missing <= self.rounding:
            return 0.0
        return min(missing / self.limit.rate, NEVER_SECONDS) if self.limit.rate else NEVER_SECONDS

    @property
    def spent(self) -> tuple[str, float, Any, float]:
        """As of the count, so that nothing is lost that fills up meanwhile."""
        return self.name, self.tokens, self.counted_at, self.full_in

    @property
    def full_in(self) -> float:
        """Seconds until it has all its tokens."""
        missing = (self.limit.burst or 0.0) - self.tokens
        return min(missing / self.limit.rate, NEVER_SECONDS) if self.limit.rate else NEVER_SECONDS


@dataclass
class LimitedLane:
    """A lane, what is to be taken from it, and its limits: buckets with the units that a job takes of each."""

    row: Row
    wanted: Wanted
    limits: list[tuple[LimitBucket, int]] = field(default_factory=list)
    granted: int = 0

    @property
    def locked(self) -> bool:
        return all(bucket.locked for bucket, _ in self.limits)

    def grant_one(self) -> bool:
        """Grant another job, if it is wanted and all limits have room for it."""
        if self.granted == self.wanted[-1] or any(bucket.room(units) == 0 for bucket, units in self.limits):
            return False
        for bucket, units in self.limits:
            bucket.take(units, 1)
        self.granted += 1
        return True

    @property
    def of_key(self) -> LimitBucket | None:
        return next((bucket for bucket, _ in self.limits if bucket.name == self.row["bucket"]), None)

    @property
    def is_key_full(self) -> bool:
        return self.of_key is not None and self.of_key.room(1) == 0


async def take_limited(
    tx: Tx,
    ctx: EngineContext,
    shares: Sequence[LaneShare],
    shut: Sequence[Row],
    holder: dict[str, Any],
    take: TakeShares,
) -> Taken:
    """Take as many jobs as the limits allow, while no other claim counts them. Then the next turn of the keyed lanes
    begins, also of the shut ones."""
    if not shares and not shut:
        return Taken([])
    async with tx.savepoint():
        lanes = await _with_limits(tx, [LimitedLane(*share) for share in shares[:LANES_MAX]])
        counted = [lane for lane in lanes if lane.locked]
        before = {bucket.name: (bucket.used, bucket.tokens) for lane in counted for bucket, _ in lane.limits}
        granted, seen = _granted(counted)
        rows = await take(tx, ctx, granted, {**holder, "limited": True}) if granted else []
        await _hold(tx, counted, before, [row["id"] for row in rows])
        ctx.tokens_at = _next_tokens_at(ctx, counted)
        await _next_turns(tx, {lane.row["id"]: lane.row for lane in seen}, shut, {lane["id"] for lane, _ in granted})
    tx.after_commit(lambda: ctx.gave_limited(rows))
    busy = frozenset(bucket.name for lane in lanes for bucket, _ in lane.limits if not bucket.locked)
    # Nothing for a lane that was open when it was read: another claim has filled its limit since.
    filled = bool(counted) and not granted
    return Taken(rows, busy, more=bool(shut) or filled or len(granted) < len(seen) or len(lanes) < len(shares))


async def _with_limits(tx: Tx, lanes: list[LimitedLane]) -> list[LimitedLane]:
    asked = [limits_asked(lane.row, lane.row["bucket"]) for lane in lanes]
    buckets = await _locked(tx, sorted({(bucket, name) for limits in asked for bucket, name, _ in limits}))
    locked = sorted((name,) for name, bucket in buckets.items() if bucket.locked)
    for row in await tx.all(q.limit_usage, asked=locked) if locked else []:
        bucket = buckets[row["bucket"]]
        rate, burst = bucket.limit.rate or 0.0, bucket.limit.burst or 0.0
        bucket.used, bucket.counted_at = int(row["used"]), row["counted_at"]
        bucket.tokens = burst if row["tokens"] is None else min(burst, row["tokens"] + rate * row["idle"])
    for lane, limits in zip(lanes, asked, strict=True):
        units = {bucket: taken for bucket, _, taken in limits if bucket in buckets}
        lane.limits = [(buckets[bucket], taken) for bucket, taken in units.items()]
    return lanes


async def _locked(tx: Tx, pairs: list[tuple[str, str]]) -> dict[str, LimitBucket]:
    """The buckets that have a limit."""
    rows = await tx.all(q.lock_limits, asked=pairs) if pairs else []
    return {row["bucket"]: LimitBucket(row["bucket"], limit_of(row), bool(row["locked"])) for row in rows}


def limit_of(row: Row) -> Limit:
    return Limit(row["concurrency"], row["rate"], row["burst"])


def limits_asked(lane: Any, bucket: str | None) -> list[tuple[str, str, int]]:
    """The limits that jobs of a lane may have: bucket, name (of a key's bucket the limit of each key), and the units
    that a job takes."""
    asked = [(name, name, 1) for name in (f"{kind}:{lane[kind]}" for kind in LIMITED_BY)]
    asked += [(name, name, units) for name, units in msgspec.json.decode(lane["limits"]).items()]
    return asked if bucket is None else [*asked, (bucket, f"key:{lane['type']}", 1)]


def _granted(lanes: list[LimitedLane]) -> tuple[list[LaneShare], list[LimitedLane]]:
    """What to take from the lanes, which share what their limits have left; and the lanes whose turn is over. A lane
    that waits for another limit than that of its key keeps its turn."""
    asking = lanes
    while asking := [lane for lane in asking if lane.grant_one()]:
        continue
    granted = [(lane.row, (*lane.wanted[:-1], lane.granted)) for lane in lanes if lane.granted]
    return granted, [lane for lane in lanes if lane.granted or lane.is_key_full]


async def _hold(tx: Tx, lanes: list[LimitedLane], before: dict[str, tuple[int, float]], ids: list[str]) -> None:
    """Record the units of the leased jobs, which may be fewer than were granted, and the tokens that they spend."""
    held = sorted({(lane.row["id"], bucket.name, units) for lane in lanes for bucket, units in lane.limits})
    rows = await tx.all(q.hold_units, held=held, ids=ids) if held and ids else []
    buckets = {bucket.name: bucket for lane in lanes for bucket, _ in lane.limits}
    for name, bucket in buckets.items():
        bucket.used, bucket.tokens = before[name]
    taken = Counter((row["bucket"], row["units"]) for row in rows)
    for (name, units), jobs in taken.items():
        buckets[name].take(units, jobs)
    rated = sorted({name for name, _ in taken if buckets[name].limit.rate is not None})
    if rated:
        await tx.all(q.spend_tokens, spent=[buckets[name].spent for name in rated])


def _next_tokens_at(ctx: EngineContext, lanes: list[LimitedLane]) -> float | None:
    """When the first bucket that has no tokens left has some again, by the monotonic clock."""
    waits = [wait for lane in lanes for bucket, units in lane.limits if (wait := bucket.seconds_until(units)) > 0]
    return ctx.clock.monotonic() + min(waits) if waits else None


async def _next_turns(tx: Tx, seen: dict[int, Row], shut: Sequence[Row], served: Set[int]) -> None:
    """Of keyed lanes. Those that were not served keep their place."""
    keyed = seen | {row["id"]: row for row in shut}
    ended = [row for _, row in sorted(keyed.items()) if row["turn_at"] is not None]
    if ended:
        await tx.all(q.end_turns, lanes=[row["id"] for row in ended])
        places = [(row["id"], None if row["id"] in served else row["since"]) for row in ended]
        following = [(keyed[lane]["lane"], lane, keyed[lane]["bucket"], since) for lane, since in places]
        await tx.all(q.begin_turns, next=following)
