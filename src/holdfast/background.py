"""The loops that a process runs beside its work: one that fails is restarted, and /readyz tells of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.ids import Ids

FIRST_PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.5, 30.0
STEADY_SECONDS = 10.0  # a loop that has run for so long since it was started again is well
PATIENCE_SECONDS = 5.0  # a loop that is not well for longer makes its process not ready

Loop = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


class Loops:
    """Each loop handles the errors that it expects. Any other error ends it, and it is restarted after a backoff."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids = clock, ids
        self._failing: dict[str, float] = {}  # since when

    @contextlib.asynccontextmanager
    async def running(self, loops: Mapping[str, Loop]) -> AsyncIterator[None]:
        """These, by their names, for as long as the caller is in here."""
        tasks = [self.start(name, loop) for name, loop in loops.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def start(self, name: str, loop: Loop) -> asyncio.Task[None]:
        """One loop, until the task is canceled."""
        return asyncio.create_task(self._keep(name, loop))

    @property
    def failing(self) -> list[str]:
        """The loops that failed and have not been steady since, for longer than a short outage lasts."""
        now = self._clock.monotonic()
        return sorted(name for name, since in self._failing.items() if now - since >= PATIENCE_SECONDS)

    def complaint(self) -> str | None:
        """Why this process is not ready, if a loop is the reason. The error is in the log only: this text is public."""
        if not (failing := self.failing):
            return None
        return f"background loops keep failing ({', '.join(failing)}); the log of this process says why"

    async def _keep(self, name: str, loop: Loop) -> None:
        """Until cancelled, or until it has nothing more to do."""
        backoff = Backoff(self._ids, FIRST_PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while True:
            running = asyncio.ensure_future(loop())
            try:
                if backoff.failures and await self._is_steady(running):
                    log.info("background loop recovered: %s", name)
                    del self._failing[name]
                    backoff.reset()
                await running
                self._failing.pop(name, None)
                return
            except asyncio.CancelledError as error:
                if _is_canceled():
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    raise
                self._note(name, error)  # it canceled itself
            except Exception as error:
                self._note(name, error)
            await self._clock.sleep(backoff.next())

    async def _is_steady(self, running: asyncio.Future[None]) -> bool:
        done, _ = await asyncio.wait([running], timeout=STEADY_SECONDS)
        return not done

    def _note(self, name: str, error: BaseException) -> None:
        """Logged once for each time that it begins to fail."""
        if name not in self._failing:
            reason = str(error) or type(error).__name__
            log.error("background loop failed, restarting: %s: %s", name, reason, exc_info=error)
            self._failing[name] = self._clock.monotonic()


def _is_canceled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
