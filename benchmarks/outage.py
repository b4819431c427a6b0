"""The effect of a broker outage: the time until a job is found without the broker, and until the broker is used again.

    python -m benchmarks.outage [--quick]

A worker that has nothing to do, and no reason to look by itself for a minute, loses its broker: it is killed, or all
that goes there and comes from there is swallowed. A job is enqueued at once, another one when the loss was noticed;
sometimes their hints are lost, too, so that only polling finds them. Then the broker comes back: after a moment, or
when it has been away for so long that it is seldom tried. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, NamedTuple

from benchmarks.brokers import BrokerModes, ways
from benchmarks.databases import Host, host
from benchmarks.measurement import say
from benchmarks.report import arguments, print_table, write_results
from holdfast.assembly.engine import OpenEngine
from tests.dispatch.backends import Backend
from tests.dispatch.cluster import received_hints
from tests.dispatch.harness import MiniWorker, create_jobs, mini_worker, producer, until, wait_until_idle
from tests.servers.proxy import Proxy

POLL_SECONDS = 1.5
BOUNDS = {"found": POLL_SECONDS + 1, "found later": POLL_SECONDS + 1, "back": 10.0}
LIVE = 1000  # live workers, as this worker assumes: it polls once a minute
PROBE_SECONDS = 0.05


class Stage(NamedTuple):
    backend: Backend
    wire: Proxy
    creator: OpenEngine
    worker: MiniWorker


@asynccontextmanager
async def stage(machine: Host, backend: Backend) -> AsyncIterator[Stage]:
    async with machine.fresh() as database, Proxy.to(backend.url) as wire:
        near = backend.settings(database.url)
        far = backend.settings(database.url, url=wire.url, poll_seconds=POLL_SECONDS)
        async with producer(near) as creator, mini_worker(far, live=LIVE) as worker:
            yield Stage(backend, wire, creator, worker)


Loss = Callable[[Stage], Awaitable[None]]


async def killed(on: Stage) -> None:
    await asyncio.to_thread(on.backend.server.stop, kill=True)


async def cut_off(on: Stage) -> None:
    on.wire.swallow(requests=True, answers=True)


class Sizes(NamedTuple):
    cases: tuple[tuple[Loss, bool], ...]  # how the broker is lost, and whether hints can go through the database
    rounds: int = 6
    short: float = 2.5  # by then the loss is noticed, however it happened
    long: float = 20.0  # every second time


FULL = Sizes(tuple((loss, hinted) for loss in (killed, cut_off) for hinted in (True, False)))
QUICK = Sizes(((killed, True), (cut_off, False)), rounds=1, short=0.1)


async def found_after(on: Stage, *, hinted: bool) -> float:
    """Seconds to the end of a job that is enqueued now."""
    wakers = on.creator.engine.ctx.wakers
    kept = list(wakers)
    if not hinted:
        wakers.clear()
    begun = time.monotonic()
    (job,) = await create_jobs(on.creator.engine, 1)
    await until(lambda: job in on.worker.done, seconds=120)
    wakers[:] = kept
    return time.monotonic() - begun


async def back_after(on: Stage) -> float:
    """Seconds from the end of the outage to the first hint received through the broker."""
    if not on.backend.server.running:
        await asyncio.to_thread(on.backend.server.start)
    await on.wire.come_back()
    begun, before = time.monotonic(), received_hints(on.worker.dispatch)
    while received_hints(on.worker.dispatch) == before:
        await create_jobs(on.creator.engine, 1)
        await asyncio.sleep(PROBE_SECONDS)
    return time.monotonic() - begun


async def outage(on: Stage, loss: Loss, *, hinted: bool, away_seconds: float) -> dict[str, float]:
    await wait_until_idle(on.worker)
    await loss(on)
    taken = {"found": await found_after(on, hinted=hinted)}
    await asyncio.sleep(away_seconds)
    return taken | {"found later": await found_after(on, hinted=hinted), "back": await back_after(on)}


async def outages(machine: Host, backend: Backend, sizes: Sizes) -> list[dict[str, Any]]:
    found = []
    for loss, hinted in sizes.cases:
        case, taken = f"{backend.mode}, {loss.__name__}, {'hinted' if hinted else 'no hint'}", []
        for number in range(sizes.rounds):
            say(f"  {case}: {number + 1} of {sizes.rounds}")
            async with stage(machine, backend) as on:
                away = sizes.long if number % 2 else sizes.short
                taken.append(await outage(on, loss, hinted=hinted, away_seconds=away))
        for what, bound in BOUNDS.items():
            seconds = [each[what] for each in taken]
            met = max(seconds) <= bound
            found.append({"figure": f"{case}: {what}", "seconds": seconds, "bound": bound, "met": met})
    return found


async def measure(known: BrokerModes, sizes: Sizes) -> list[dict[str, Any]]:
    """All brokers at the same time: it is mostly waiting."""
    with host("postgres") as machine:
        async with machine.fresh():  # the first makes the template for all
            taken = await asyncio.gather(*(outages(machine, backend, sizes) for backend in known.backends.values()))
    found = [figure for figures in taken for figure in figures]
    rows = [
        [each["figure"], *(f"{pick(each['seconds']):.2f} s" for pick in (median, max)), f"<= {each['bound']:g} s"]
        for each in found
    ]
    print_table(f"Broker outage; poll_seconds={POLL_SECONDS}", ["", "median", "longest", "bound"], rows)
    return found


def main(words: list[str] | None = None) -> int:
    options = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    with ways() as known:
        found = asyncio.run(measure(known, QUICK if options.quick else FULL))
    write_results(options.results, "outage", quick=options.quick, stores={"postgres": found})
    return int(not options.quick and not all(figure["met"] for figure in found))


if __name__ == "__main__":
    sys.exit(main())
