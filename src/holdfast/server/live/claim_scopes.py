"""Records which queues and job types workers claim, for `holdfast jobs why` and `holdfast workers list`."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.server.live.waiting_claims import WaitingClaim

NOTE_SECONDS = 30.0  # a scope is recorded again after this time
NOTED_MAX = 10_000

Key = tuple[str, tuple[str, ...] | None, tuple[str, ...] | None]


class ClaimScopes:
    """A repeated scope writes nothing."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._noted: dict[Key, float] = {}  # time of the last write, on the monotonic clock

    async def note(self, claim: WaitingClaim) -> None:
        key = (claim.worker, _sorted(claim.types), _sorted(claim.queues))
        now = self._clock.monotonic()
        if now - self._noted.get(key, -NOTE_SECONDS) < NOTE_SECONDS:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        _, types, queues = key
        await self._engine.workers.record_scope(
            claim.worker, None if types is None else list(types), None if queues is None else list(queues)
        )
        self._noted[key] = now


def _sorted(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(set(names)))
