"""The crash detector: jobs of a crashed worker process are requeued within seconds, before their leases expire."""

from __future__ import annotations

import logging

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import StoreError
from holdfast.ids import Ids
from holdfast.maintenance.rotation import Rotation
from holdfast.outage_log import outage
from holdfast.store.presence import Presence

CHECK_SECONDS = 1.5
SUSPECT_SECONDS = 0.5  # between two checks, while a process seems dead
WINDOW_SECONDS = 2.0  # dead at every check for so long: longer than a connection takes to be restored
SETTLE_SECONDS = 3.0  # after our own connection was restored: other processes may still be reconnecting

log = logging.getLogger(__name__)


class CrashDetector:
    """A process that has been unreachable for two seconds loses its leases. Fencing makes a wrong guess harmless; the
    window makes it rare. Any number of processes may check at once."""

    def __init__(
        self, engine: Engine, presence: Presence, clock: Clock, ids: Ids, rotation: Rotation | None = None
    ) -> None:
        self._engine, self._presence, self._clock, self._ids = engine, presence, clock, ids
        self._rotation = rotation or Rotation(clock, ids)
        self._session_number = presence.session_number
        self._settled_at = clock.monotonic()
        self._dead_since: dict[str, float] = {}
        self._reaped: set[str] = set()
        self._failing = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.check()
                self._failing = False
            except Exception as error:
                self._start_over(error)
            if self._dead_since:
                await self._clock.sleep(SUSPECT_SECONDS * (0.8 + 0.4 * self._ids.jitter()))
            elif self._all_idle:
                await self._until_busy()
            else:
                await self._rotation.wait(CHECK_SECONDS, together=CHECK_SECONDS)

    @property
    def _all_idle(self) -> bool:
        """Many processes are alive and none holds a job, as of the last heartbeat."""
        return self._rotation.many and not self._rotation.fleet.busy

    async def _until_busy(self) -> None:
        """There is nothing to check until a heartbeat reports that a process holds a job."""
        while self._all_idle:
            await self._clock.sleep(CHECK_SECONDS)

    async def check(self) -> list[str]:
        """Reaps the processes that were dead at every check for long enough, and returns their names."""
        claiming = set(await self._engine.polls.claiming_instances()) - self._presence.names
        ended = await self._presence.dead(claiming)
        dead = set(await self._engine.polls.instances(sorted(ended))) if ended else set()
        now = self._clock.monotonic()
        if not self._settled(now):
            return []
        self._dead_since = {name: self._dead_since.get(name, now) for name in dead}
        overdue = [(name, now - since) for name, since in self._dead_since.items() if now - since >= WINDOW_SECONDS]
        gone = [name for name, seconds in overdue if await self._reap(name, seconds)]
        self._forget(claiming - (ended - dead))
        return gone

    def _settled(self, now: float) -> bool:
        if self._presence.session_number != self._session_number:
            self._session_number, self._settled_at = self._presence.session_number, now + SETTLE_SECONDS
        if now < self._settled_at:
            self._dead_since.clear()
        return now >= self._settled_at

    async def _reap(self, name: str, seconds: float) -> bool:
        """False if it has renewed its leases since: it is alive, and has only lost its lock."""
        full, reaped = self._engine.limits.sweep_batch, 0
        while True:
            taken = len(await self._engine.maintenance.reap(gone=[name], unheard_seconds=seconds))
            reaped += taken
            if taken < full:
                break
        if name in await self._engine.polls.instances([name]):
            del self._dead_since[name]
            return False
        log.warning("worker instance %s crashed; requeued %d %s", name, reaped, "job" if reaped == 1 else "jobs")
        self._reaped.add(name)
        return True

    def _forget(self, holding: set[str]) -> None:
        """Delete the presence of crashed processes once they hold nothing."""
        done = self._reaped - holding
        self._presence.forget(done)
        self._reaped -= done

    def _start_over(self, error: Exception) -> None:
        """After an error it is not known that they were dead all the time."""
        self._dead_since.clear()
        if isinstance(error, StoreError):
            outage.failed("look for crashed workers", error, often=False)
        elif not self._failing:
            log.warning("cannot look for crashed workers, retrying: %s", error, exc_info=error)
        self._failing = True
