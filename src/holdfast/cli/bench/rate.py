"""Measures a rate in jobs per second, with a progress bar."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.cli.jobs.summary import progress_bar
from holdfast.clock import Clock

STAGE_SECONDS = 5.0  # at most, for one measurement


async def rate(clock: Clock, what: str, total: int, call: Callable[[], Awaitable[int]], *, callers: int = 1) -> float:
    """Call until `total` jobs are done; each call returns how many jobs it did."""
    done, begun = 0, clock.monotonic()

    async def caller() -> None:
        nonlocal done
        while done < total and clock.monotonic() < begun + STAGE_SECONDS:
            more = await call()
            done += more  # after the await: other callers add to it, too
            advance(done)

    with progress_bar(what, total, shown=True) as advance:
        await asyncio.gather(*(caller() for _ in range(callers)))
        return done / (clock.monotonic() - begun)
