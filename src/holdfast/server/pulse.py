"""How the database does, asked now and then, so that nobody who asks us has to wait for it."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.engine import Engine


class Pulse:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock

    async def run(self) -> None:
        """Until cancelled."""
        await self._clock.sleep(1e9)
