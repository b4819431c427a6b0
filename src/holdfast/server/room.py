"""Where claims wait that found nothing: a hint lets the first one look again, and what it leaves, the next."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.store.presence import Presence


class Room:
    def __init__(self, presence: Presence, clock: Clock) -> None:
        self._presence, self._clock = presence, clock

    async def run(self) -> None:
        """Until cancelled."""
        await self._clock.sleep(1e9)
