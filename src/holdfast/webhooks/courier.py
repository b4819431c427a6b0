"""Takes what is due to where it should go, at least once."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.ids import Ids


class Courier:
    def __init__(self, engine: Engine, clock: Clock, ids: Ids) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids

    async def run(self) -> None:
        """Until cancelled."""
        await self._clock.sleep(1e9)
