"""The end of the event log, read once for all who watch: no watcher holds a connection."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.engine import Engine


class Feed:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock

    async def run(self) -> None:
        """Until cancelled."""
        await self._clock.sleep(1e9)
