"""Rate limits per key, and limits on failed logins per address and key; in bounded memory."""

from __future__ import annotations

import logging
from functools import lru_cache
from ipaddress import ip_network
from math import ceil

from holdfast.clock import Clock
from holdfast.errors import TooMany

FAILURES_MAX = 20  # per source address or key ...
FAILURES_SECONDS = 60.0  # ... in this time
ENTRIES_MAX = 10_000

log = logging.getLogger(__name__)


class RateLimit:
    """A rate limit per caller, with a burst of one second, and at least one request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}  # when the next request is due at an even rate

    def take(self, caller: str, per_second: float) -> None:
        now = self._clock.monotonic()
        due = max(self._due.get(caller, now), now)
        if (early := due - now - max(1 - 1 / per_second, 0)) > 0:
            raise TooMany(f"rate limit exceeded: {per_second:g} requests a second", retry_after=ceil(early))
        if caller not in self._due and len(self._due) >= ENTRIES_MAX:
            self._due.pop(next(iter(self._due)))
        self._due[caller] = due + 1 / per_second


class FailedLogins:
    """Failed logins by source address and key; the most recent are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}  # count, and when it expires

    def add(self, *names: str) -> None:
        now = self._clock.monotonic()
        for name in names:
            count, until = self._seen.pop(name, (0, 0.0))
            self._seen[name] = (count + 1, until) if until > now else (1, now + FAILURES_SECONDS)
            if count + 1 == FAILURES_MAX:
                log.warning("%d failed logins within %g s: %s is blocked", FAILURES_MAX, FAILURES_SECONDS, name)
        while len(self._seen) > ENTRIES_MAX:
            self._seen.pop(next(iter(self._seen)))

    def check(self, *names: str) -> None:
        """Raise if one of the names has failed too often."""
        if (wait := max(map(self._wait, names))) > 0:
            raise TooMany("too many failed logins; try again later", retry_after=ceil(wait), code="too_many_failures")

    def _wait(self, name: str) -> float:
        count, until = self._seen.get(name, (0, 0.0))
        return until - self._clock.monotonic() if count >= FAILURES_MAX else 0.0


@lru_cache(maxsize=1024)
def source_of(address: str) -> str:
    """The network that counts as one source: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        return str(ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
