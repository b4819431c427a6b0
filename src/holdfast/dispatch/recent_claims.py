"""The jobs that this process claimed recently: hints about them are ignored."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.clock import Clock

KEPT_SECONDS = 2.0  # hints seldom take longer; a lost job may get a new hint
KEPT_MAX = 10_000


class RecentClaims:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}  # the oldest first

    def add(self, jobs: Iterable[str]) -> None:
        now = self._clock.monotonic()
        for job in jobs:
            self._since.pop(job, None)
            self._since[job] = now
        while len(self._since) > KEPT_MAX:
            del self._since[next(iter(self._since))]

    def remove(self, jobs: Iterable[str]) -> None:
        """Released: hints about them count again."""
        for job in jobs:
            self._since.pop(job, None)

    def __contains__(self, job: object) -> bool:
        since = self._since.get(job) if isinstance(job, str) else None
        return since is not None and self._clock.monotonic() - since < KEPT_SECONDS
