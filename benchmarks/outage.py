"""How long a broker's absence is felt: until a job is found without it, and until it is used again when it is back.

    python -m benchmarks.outage [--quick]

A worker that has nothing to do, and no reason to look by itself for a minute, loses its broker: it is killed, or all
that goes there and comes from there is swallowed. At once a job is enqueued. First by somebody whose hints go by the
database when they cannot go by the broker; then by one whose hints are all lost, so that only polling finds it. Then
the broker comes back. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, NamedTuple

from benchmarks.brokers import Ways, ways
from benchmarks.databases import Host, host
from benchmarks.report import arguments, print_table, write_results
from benchmarks.rounds import say
from holdfast.assembly import Opened
from tests.dispatch.crew import heard
from tests.dispatch.places import Place
from tests.dispatch.stories import Hand, creating, hand, idle, jobs, until
from tests.servers.proxy import Proxy

POLL_SECONDS = 1.5
FOUND_SECONDS, BACK_SECONDS = POLL_SECONDS + 1, 10.0
LIVE = 1000  # workers, as this one believes: so it polls once in a minute
PROBE_SECONDS = 0.05


class Stage(NamedTuple):
    place: Place
    wire: Proxy
    creator: Opened
    worker: Hand


@asynccontextmanager
async def stage(machine: Host, place: Place) -> AsyncIterator[Stage]:
    async with machine.fresh() as database, Proxy.to(place.url) as wire:
        near = place.settings(database.url)
        far = place.settings(database.url, url=wire.url, poll_seconds=POLL_SECONDS)
        async with creating(near) as creator, hand(far, live=LIVE) as worker:
            yield Stage(place, wire, creator, worker)


async def killed(on: Stage) -> None:
    await asyncio.to_thread(on.place.server.stop, kill=True)


async def cut_off(on: Stage) -> None:
    on.wire.swallow(requests=True, answers=True)


async def found_after(on: Stage, loss: Callable[[Stage], Awaitable[None]], *, hinted: bool) -> float:
    """Seconds from the loss to the end of a job that is enqueued at once."""
    await idle(on.worker)
    wakers = on.creator.engine.rules.wakers
    kept = list(wakers)
    if not hinted:
        wakers.clear()
    try:
        await loss(on)
        begun = time.monotonic()
        (job,) = await jobs(on.creator.engine, 1)
        await until(lambda: job in on.worker.done, seconds=120)
        return time.monotonic() - begun
    finally:
        wakers[:] = kept


async def back_after(on: Stage) -> float:
    """Seconds from its return to when a hint that it carried is heard."""
    if not on.place.server.running:
        await asyncio.to_thread(on.place.server.start)
    await on.wire.come_back()
    begun, before = time.monotonic(), heard(on.worker.dispatch)
    while heard(on.worker.dispatch) == before:
        await jobs(on.creator.engine, 1)
        await asyncio.sleep(PROBE_SECONDS)
    return time.monotonic() - begun


async def outages(machine: Host, place: Place, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {}
    for number in range(rounds):
        say(f"  {place.mode}: {number + 1} of {rounds}")
        for loss in (killed, cut_off):
            for hinted in (True, False):
                name = f"{loss.__name__.replace('_', ' ')}, {'hint by the database' if hinted else 'no hint'}"
                async with stage(machine, place) as on:
                    taken.setdefault(f"found: {name}", []).append(await found_after(on, loss, hinted=hinted))
                    taken.setdefault(f"back: {name}", []).append(await back_after(on))
    return taken


async def measure(known: Ways, rounds: int) -> list[dict[str, Any]]:
    found, rows = [], []
    with host("postgres") as machine:
        for mode, place in known.places.items():
            for name, times in (await outages(machine, place, rounds)).items():
                bound = FOUND_SECONDS if name.startswith("found") else BACK_SECONDS
                rows.append([f"{mode}, {name}", f"{median(times):.2f} s", f"{max(times):.2f} s", f"<= {bound:g} s"])
                figure = f"{mode}, {name}"
                found.append({"figure": figure, "seconds": times, "bound": bound, "met": max(times) <= bound})
    print_table(f"The broker is away; poll_seconds={POLL_SECONDS}", ["", "median", "longest", "bound"], rows)
    return found


def main(words: list[str] | None = None) -> int:
    options = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    with ways() as known:
        found = asyncio.run(measure(known, 1 if options.quick else 5))
    write_results(options.results, "outage", quick=options.quick, stores={"postgres": found})
    return int(not options.quick and not all(figure["met"] for figure in found))


if __name__ == "__main__":
    sys.exit(main())
