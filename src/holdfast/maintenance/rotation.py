"""Spreads periodic work over all live processes: each may do it, one at a time is enough."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.model.reports import Fleet

FEW = 4  # up to so many processes each work on their own interval: none has to wait for the others
WAIT_MAX_SECONDS = 300.0  # whatever the size of the fleet
SPREAD = 0.5  # of the interval: processes that were started together drift apart


class Rotation:
    """There is no leader election: each process knows from its last heartbeat how many are alive, and its own position.

    A process that is wrong about that, or about the time, works at another moment, and not less often.
    """

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids = clock, ids
        self.fleet = Fleet()

    def update(self, fleet: Fleet) -> None:
        self.fleet = fleet

    @property
    def many(self) -> bool:
        return self.fleet.live > FEW

    async def wait(self, every: float, *, together: float) -> None:
        """Until it is this process's turn. Few processes each work about `every` seconds; of many, one works every
        `together` seconds.

        Recalculated about every `every` seconds: when most processes are gone, the others take their turns.
        """
        fleet, waited = self.fleet, 0.0
        pause = self._pause(every, together)
        while waited < pause:
            step = min(every * (1 + SPREAD / 2), pause - waited)
            await self._clock.sleep(step)
            waited += step
            if self.fleet != fleet:
                fleet = self.fleet
                pause = min(waited + self._pause(every, together), self._longest(every, together))

    def _pause(self, every: float, together: float) -> float:
        if not self.many:
            return every * (1 + SPREAD * (self._ids.jitter() - 0.5))
        round_ = together * self.fleet.live
        left = (together * self.fleet.place - self._clock.now().timestamp()) % round_
        if left < together / 2:  # the turn that has just been taken
            left += round_
        return min(left, WAIT_MAX_SECONDS)

    def _longest(self, every: float, together: float) -> float:
        return min(together * self.fleet.live, WAIT_MAX_SECONDS) if self.many else every
