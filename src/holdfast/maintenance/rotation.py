"""What every process may do and one is enough for: the processes that live take turns at it."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.model.reports import Fleet

FEW = 4  # so many do it each for itself: whoever is left then has not a moment to wait
WAIT_MAX_SECONDS = 300.0  # whatever was heard of the others
SPREAD = 0.5  # of the interval: a few that were started together do not go on in step


class Rotation:
    """Nobody is elected and nobody asked: each knows how many live, and its place among them, from its last beat.

    Who is wrong about that, or about the time, does it at another moment than the others think, and no less often.
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
        """Until it is our turn. A few do it each about `every` so often; of many, one of them every `together`.

        Thought over again about every `every`: when most of the others are gone, their turns are ours.
        """
        fleet, waited = self.fleet, 0.0
        pause = self._pause(every, together)
        while waited < pause:
            step = min(every * (1 + SPREAD / 2), pause - waited)
            await self._clock.sleep(step)
            waited += step
            if self.fleet != fleet:
                fleet = self.fleet
                pause = min(waited + self._pause(every, together), self._most(every, together))

    def _pause(self, every: float, together: float) -> float:
        if not self.many:
            return every * (1 + SPREAD * (self._ids.jitter() - 0.5))
        round_ = together * self.fleet.live
        left = (together * self.fleet.place - self._clock.now().timestamp()) % round_
        if left < together / 2:  # that is the turn we have just had
            left += round_
        return min(left, WAIT_MAX_SECONDS)

    def _most(self, every: float, together: float) -> float:
        return min(together * self.fleet.live, WAIT_MAX_SECONDS) if self.many else every
