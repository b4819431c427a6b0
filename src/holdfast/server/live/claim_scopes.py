"""What workers ask for in their claims, noted in the database once in a while: `why` and `workers list` tell it."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.server.live.waiting_claims import WaitingClaim

NOTE_SECONDS = 30.0  # a scope is noted again after so long
NOTED_MAX = 10_000

Key = tuple[str, tuple[str, ...] | None, tuple[str, ...] | None]


class ClaimScopes:
    """A claim that asks for the same as the one before it writes nothing."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._noted: dict[Key, float] = {}  # when, by this process's clock

    async def note(self, seat: WaitingClaim) -> None:
        key = (seat.worker, _sorted(seat.types), _sorted(seat.queues))
        now = self._clock.monotonic()
        if now - self._noted.get(key, -NOTE_SECONDS) < NOTE_SECONDS:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        _, types, queues = key
        await self._engine.workers.record_scope(
            seat.worker, None if types is None else list(types), None if queues is None else list(queues)
        )
        self._noted[key] = now


def _sorted(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(set(names)))
