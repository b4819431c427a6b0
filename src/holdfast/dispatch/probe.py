"""Checks that the broker is reachable, for a process that only sends and may have nothing to send for long."""

from __future__ import annotations

import asyncio

from holdfast.clock import Clock
from holdfast.dispatch.breaker import PAUSE_MAX_SECONDS, Breaker
from holdfast.dispatch.broker import Broker


class BrokerProbe:
    """Connects at the start, and while the breaker is open."""

    def __init__(self, broker: Broker, breaker: Breaker, clock: Clock) -> None:
        self._broker, self._breaker, self._clock = broker, breaker, clock
        self._changed = asyncio.Event()
        breaker.watchers.append(self._changed.set)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            await self._try()
            if self._breaker.closed:
                await self._changed.wait()
            await self._clock.sleep(PAUSE_MAX_SECONDS)  # a broker that connects but rejects hints must not flap

    async def _try(self) -> None:
        try:
            await self._broker.open()
            self._breaker.succeeded()
        except Exception as error:
            self._breaker.failed(str(error))
