"""Slower, please: requests above a key's rate, and logins that fail again and again. In memory that cannot grow."""

from __future__ import annotations

import logging
from functools import lru_cache
from ipaddress import ip_network
from math import ceil

from holdfast.clock import Clock
from holdfast.errors import TooMany

FAILURES_MAX = 20  # of one source or against one key ...
FAILURES_SECONDS = 60.0  # ... in this time
REMEMBERED_MAX = 10_000

log = logging.getLogger(__name__)


class RateLimit:
    """How fast each caller may ask: a second's worth at once, and at least one request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}  # when a caller's next request would come if they all came evenly

    def take(self, caller: str, per_second: float) -> None:
        now = self._clock.monotonic()
        due = max(self._due.get(caller, now), now)
        if (early := due - now - max(1 - 1 / per_second, 0)) > 0:
            raise TooMany(f"at most {per_second:g} requests a second, please", retry_after=ceil(early))
        if caller not in self._due and len(self._due) >= REMEMBERED_MAX:
            self._due.pop(next(iter(self._due)))
        self._due[caller] = due + 1 / per_second


class FailedLogins:
    """Failed logins, by source and by what they tried to get in with; those that failed last are remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}  # how many, and until when they count

    def add(self, *names: str) -> None:
        now = self._clock.monotonic()
        for name in names:
            count, until = self._seen.pop(name, (0, 0.0))
            self._seen[name] = (count + 1, until) if until > now else (1, now + FAILURES_SECONDS)
            if count + 1 == FAILURES_MAX:
                log.warning("%d failed logins within %g s: %s has to wait", FAILURES_MAX, FAILURES_SECONDS, name)
        while len(self._seen) > REMEMBERED_MAX:
            self._seen.pop(next(iter(self._seen)))

    def refuse(self, *names: str) -> None:
        """Whoever has failed too often is told when to come back, and nothing else."""
        if (wait := max(map(self._wait, names))) > 0:
            raise TooMany("too many failed logins; wait", retry_after=ceil(wait), code="too_many_failures")

    def _wait(self, name: str) -> float:
        count, until = self._seen.get(name, (0, 0.0))
        return until - self._clock.monotonic() if count >= FAILURES_MAX else 0.0


@lru_cache(maxsize=1024)
def source_of(address: str) -> str:
    """Who stands behind an address: of IPv6 anybody has a whole /64 to themselves."""
    if ":" not in address:
        return address
    try:
        return str(ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
