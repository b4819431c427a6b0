"""The clock: the only place that reads the time or sleeps, so that tests can replace it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def to_micros(at: datetime) -> int:
    since = at - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    """Out of range, the nearest time that Python can represent: a row written by hand must stay readable."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return LAST if micros > 0 else FIRST


async def turn() -> None:
    """Let other tasks of the event loop run; no time passes."""
    await asyncio.sleep(0)


class Clock:
    """Real time. `database_now` is None: PostgreSQL uses its own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def database_now(self) -> datetime | None:
        return None

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for the event at most so long. Returns whether it is set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        return event.is_set()

    def block(self, seconds: float) -> None:
        """Sleep in a thread without an event loop."""
        time.sleep(seconds)


class MovableClock(Clock):
    """Time that a test moves; both databases then use it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def database_now(self) -> datetime | None:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
