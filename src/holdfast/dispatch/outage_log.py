"""Says once that a broker cannot be used, and once that it can be again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.dispatch.breaker import CALM_SECONDS, Breaker


class Telling:
    """A broker of which some works and some fails opens and closes its breaker every few seconds: that is one outage.
    It is over when the breaker has been closed for a while."""

    def __init__(
        self,
        breaker: Breaker,
        *,
        lost: Callable[[str], None],
        back: Callable[[], None],
        calm_seconds: float = CALM_SECONDS,
    ) -> None:
        self._breaker, self._lost, self._back = breaker, lost, back
        self._calm_seconds = calm_seconds
        self._told = False  # that it cannot be used
        self._calm: asyncio.TimerHandle | None = None
        breaker.watchers.append(self._changed)

    def _changed(self) -> None:
        if self._calm is not None:
            self._calm.cancel()
            self._calm = None
        if self._breaker.closed:
            self._calm = asyncio.get_running_loop().call_later(self._calm_seconds, self._over)
        elif not self._told:
            self._told = True
            self._lost(self._breaker.reason)

    def _over(self) -> None:
        self._told, self._calm = False, None
        self._back()
