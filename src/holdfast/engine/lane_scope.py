"""The lanes that claims of one kind see: read now, or by an earlier claim of this process."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

from holdfast.engine.context import EngineContext
from holdfast.engine.lanes import Window, is_plain, open_key_lanes, open_lanes
from holdfast.engine.limited import Taken
from holdfast.engine.turns import LastTaken, Turn
from holdfast.store import Row, Tx, q

SCOPES_MAX = 1000  # of claims of this process, remembered
TURNS_SECONDS = 0.1  # lanes that get their first job are not seen for so long
# How long the only lane is not read again: another server may have changed something about it. And how long claims take
# what is behind the job taken last: older jobs of this lane are not seen meanwhile. Both longer if the read, or the
# claim from the beginning, took long because a transaction keeps dead rows: then few claims wait for one. Looks for
# jobs that are more urgent, or of other lanes, are less rare.
UNREAD_SECONDS, BEHIND_SECONDS = 1.0, 0.05
SELDOM_TIMES, SELDOM_MAX_SECONDS, LOOK_TIMES = 100, 20.0, 5
BEHIND_JOBS_MIN = 20_000  # so many rows are soon walked over; each connection has to plan another statement

_Known = TypeVar("_Known")


class LaneScope:
    """What a claim asks for, and what earlier claims of the same have read: the lane that was the only one with jobs,
    or the next turns of many lanes. A claim from these checks by itself that they are still open."""

    def __init__(self, ctx: EngineContext, **asked: Any) -> None:
        self._ctx, self._asked = ctx, asked
        self._key = tuple(tuple(names) if isinstance(names, list) else names for names in asked.values())

    @property
    def only(self) -> int | None:
        if self._ctx.limits.ageing_seconds is not None:
            return None
        lane, until = self._ctx.only_lanes.get(self._key, (None, 0.0))
        return lane if self._ctx.clock.monotonic() < until else None

    @property
    def last_taken(self) -> LastTaken | None:
        """A claim that begins behind it does not walk over the rows of jobs that were taken before, which PostgreSQL
        keeps until they are vacuumed, and longer while any transaction is open that could see them."""
        last = self._ctx.last_taken.get(self._key)
        if last is None or last.jobs < BEHIND_JOBS_MIN or self._ctx.clock.monotonic() >= last.until:
            return None
        return last

    async def elsewhere(self, tx: Tx, lane: int, last: LastTaken) -> bool:
        """Whether there are more urgent jobs, or jobs of other lanes: then the lanes are read."""
        began = self._ctx.clock.monotonic()
        if began < last.looked_until:
            return False
        found = await tx.one(q.jobs_elsewhere, lane=lane, priority=last.priority)
        if found is not None and found["found"]:
            self._ctx.last_taken.pop(self._key, None)
            return True
        seen = last._replace(looked_until=self.seldom(began, look=True))
        _remember(self._ctx.last_taken, self._key, seen)
        return False

    def seldom(self, began: float, least: float = 0.0, *, look: bool = False) -> float:
        """Until when a read that has begun then is not repeated: the longer it took, the longer. `look`: for a look."""
        now, times = self._ctx.clock.monotonic(), LOOK_TIMES if look else SELDOM_TIMES
        return now + max(least, min((now - began) * times, SELDOM_MAX_SECONDS))

    def took(self, rows: list[Row], wanted: int, until: float) -> None:
        """A claim took these from the only lane. The next ones begin behind them until then, unless it wanted more."""
        if len(rows) < wanted:
            self._ctx.last_taken.pop(self._key, None)
            return
        before = self._ctx.last_taken.get(self._key)
        priority = min(row["priority"] for row in rows)
        last = max(row["id"] for row in rows if row["priority"] == priority)
        jobs, looked = (before.jobs, before.looked_until) if before else (0, 0.0)
        _remember(self._ctx.last_taken, self._key, LastTaken(priority, last, until, looked, jobs + len(rows)))

    def next_turns(self, jobs: int) -> list[Turn]:
        """Of the lanes that an earlier claim has read: a turn for each job."""
        turns, until = self._ctx.next_turns.get(self._key, (None, 0.0))
        if not turns or self._ctx.clock.monotonic() >= until:
            return []
        return [turns.popleft() for _ in range(min(jobs, len(turns)))]

    def drop_turns(self) -> None:
        """A lane had fewer jobs than turns: its tenant may have other lanes, which a read sees."""
        self._ctx.next_turns.pop(self._key, None)

    def plan_turns(self, window: Window, taken: Taken) -> None:
        """If there are more lanes than one read sees, the next claims take turns in these without another read. Not if
        some are not plain: these would have no turn, and others, also less urgent ones, would have theirs."""
        ctx = self._ctx
        if window.complete or ctx.limits.ageing_seconds is not None or not all(map(self._is_plain, window.lanes)):
            return
        turns = deque(ctx.turns.plan(window.lanes, taken.rows, taken.lanes))
        _remember(ctx.next_turns, self._key, (turns, ctx.clock.monotonic() + TURNS_SECONDS))

    def _is_plain(self, lane: Row) -> bool:
        return is_plain(lane) and not lane["keyed"] and not self._ctx.hooks.needs_of(lane["type"])

    async def open_lanes(self, tx: Tx, jobs: int) -> Window:
        ctx = self._ctx
        query, most, began = ctx.mine(q.open_lanes), ctx.limits.lanes_max, ctx.clock.monotonic()
        window = await open_lanes(tx, query, ctx.lane_cursors, most=most, jobs=jobs, **self._asked)
        if not window.lanes or window.lanes[0]["keyed"]:
            window = await self._with_keyed(tx, window, jobs)
        if window.only is None or ctx.hooks.needs_of(window.lanes[0]["type"]):
            ctx.only_lanes.pop(self._key, None)
        else:
            _remember(ctx.only_lanes, self._key, (window.only, self.seldom(began, UNREAD_SECONDS)))
        return window

    async def _with_keyed(self, tx: Tx, plain: Window, jobs: int) -> Window:
        ctx = self._ctx
        keyed = await open_key_lanes(tx, ctx.mine(q.open_key_lanes), ctx.lane_cursors, jobs=jobs, **self._asked)
        complete = plain.complete and keyed.complete
        return Window([*plain.lanes, *keyed.lanes], complete, shut=keyed.shut)


def _remember(home: dict[tuple[object, ...], _Known], key: tuple[object, ...], known: _Known) -> None:
    if len(home) >= SCOPES_MAX:
        home.clear()
    home[key] = known
