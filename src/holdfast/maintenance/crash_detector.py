"""The death watch: the jobs of a process that was seen to die do not wait for their leases."""

from __future__ import annotations

import logging

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import StoreError
from holdfast.ids import Ids
from holdfast.maintenance.rotation import Rotation
from holdfast.outage_log import outage
from holdfast.store.presence import Presence

LOOK_SECONDS = 1.5
CLOSER_LOOK_SECONDS = 0.5  # while somebody seems dead
WINDOW_SECONDS = 2.0  # seen dead all that time: longer than a session takes to come back
SETTLE_SECONDS = 3.0  # after our own session came back: so did everybody's, and not all are here yet

log = logging.getLogger(__name__)


class CrashDetector:
    """Fencing keeps a wrong guess harmless; the window keeps it rare. Any number of processes may watch at once."""

    def __init__(
        self, engine: Engine, presence: Presence, clock: Clock, ids: Ids, rotation: Rotation | None = None
    ) -> None:
        self._engine, self._presence, self._clock, self._ids = engine, presence, clock, ids
        self._rotation = rotation or Rotation(clock, ids)
        self._era = presence.era
        self._settled_at = clock.monotonic()
        self._dead_since: dict[str, float] = {}
        self._reaped: set[str] = set()
        self._failing = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
                self._failing = False
            except Exception as error:
                self._start_over(error)
            if self._dead_since:
                await self._clock.sleep(CLOSER_LOOK_SECONDS * (0.8 + 0.4 * self._ids.jitter()))
            elif self._at_rest:
                await self._rest()
            else:
                await self._rotation.wait(LOOK_SECONDS, together=LOOK_SECONDS)

    @property
    def _at_rest(self) -> bool:
        """Many live and none of them holds a job, as our last beat said."""
        return self._rotation.many and not self._rotation.fleet.busy

    async def _rest(self) -> None:
        """There is nobody to watch. When that changes, the next beat of any of the many says so, and then one looks."""
        while self._at_rest:
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> list[str]:
        """One look: the processes that were dead at every look for long enough are reaped, and named in the answer."""
        holding = set(await self._engine.polls.instances()) - self._presence.names
        dead = await self._presence.dead(holding)
        now = self._clock.monotonic()
        if not self._counts(now):
            return []
        self._dead_since = {name: self._dead_since.get(name, now) for name in dead}
        overdue = [(name, now - since) for name, since in self._dead_since.items() if now - since >= WINDOW_SECONDS]
        gone = [name for name, seconds in overdue if await self._reap(name, seconds)]
        self._forget(holding)
        return gone

    def _counts(self, now: float) -> bool:
        if self._presence.era != self._era:
            self._era, self._settled_at = self._presence.era, now + SETTLE_SECONDS
        if now < self._settled_at:
            self._dead_since.clear()
        return now >= self._settled_at

    async def _reap(self, name: str, seconds: float) -> bool:
        """False when it has renewed its leases since: it lives, and has only lost its lock."""
        full, reaped = self._engine.limits.sweep_batch, 0
        while True:
            taken = len(await self._engine.maintenance.reap(gone=[name], unheard_seconds=seconds))
            reaped += taken
            if taken < full:
                break
        if name in await self._engine.polls.instances():
            del self._dead_since[name]
            return False
        log.warning("worker instance %s crashed; requeued %d jobs", name, reaped)
        self._reaped.add(name)
        return True

    def _forget(self, holding: set[str]) -> None:
        """What is left of them goes once they are known to hold nothing."""
        done = self._reaped - holding
        self._presence.forget(done)
        self._reaped -= done

    def _start_over(self, error: Exception) -> None:
        """A watch that saw an error has not seen them dead all the time."""
        self._dead_since.clear()
        if isinstance(error, StoreError):
            outage.failed("look for crashed workers", error, often=False)
        elif not self._failing:
            log.warning("cannot look for crashed workers, retrying: %s", error, exc_info=error)
        self._failing = True
