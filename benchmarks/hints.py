"""The cost of hints for producers, the cost of waiting for hints, and their latency.

    python -m benchmarks.hints [--store postgres] [--quick]

One side wakes another process that listens, the other side wakes none (K32). Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from statistics import quantiles
from typing import Any

from benchmarks.databases import Database, Host, host
from benchmarks.implementations import EngineCalls
from benchmarks.measurement import Candidate, measure_in_turns
from benchmarks.operations import create, empty
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, write_results
from holdfast.clock import Clock
from holdfast.store.notify import hint_sender, queue_waker
from holdfast.store.presence import open_presence

TARGET = 0.95  # of the rate without wake-ups
CORE_MAX = 0.01  # of a core, for waiting
CALLERS = 20

Work = Callable[[EngineCalls], Awaitable[int]]


@contextmanager
def listening(url: str) -> Iterator[None]:
    """Another process that waits for work, and does nothing else."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.hints", "--listen", url], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.communicate()  # the end of its input is its end


async def listen(url: str) -> None:
    presence = await open_presence(url)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not ended.done():
        await presence.wait(0.5)
    await presence.close()


@asynccontextmanager
async def side(database: Database, *, waking: bool) -> AsyncIterator[EngineCalls]:
    ours = await EngineCalls.open(database)
    sender = hint_sender(ours.engine.store, Clock())
    if waking:
        ours.engine.ctx.wakers.append(queue_waker(sender))
    try:
        yield ours
    finally:
        await sender.close()
        await ours.close()


async def by_many(ours: EngineCalls, *, calls: int) -> int:
    await asyncio.gather(*(create(ours, calls=calls, by=1) for _ in range(CALLERS)))
    return CALLERS * calls


def figures(calls: int) -> dict[str, Work]:
    return {
        "create one by one": partial(create, calls=calls, by=1),
        f"create by {CALLERS} callers": partial(by_many, calls=max(1, calls // 5)),
        "create 100 at a time": partial(create, calls=max(1, calls // 5), by=100),
    }


async def enqueueing(store: str, machine: Host, *, rounds: int, slices: int, calls: int) -> list[dict[str, Any]]:
    found, rows = [], []
    async with AsyncExitStack() as stack:
        sides = {}
        for name in ("waking", "silent"):
            database = await stack.enter_async_context(machine.fresh())
            sides[name] = await stack.enter_async_context(side(database, waking=name == "waking"))
        stack.enter_context(listening(sides["waking"].database.url))
        for figure, run in figures(calls).items():
            candidates = [
                Candidate(name, ours.database, partial(empty, ours), partial(run, ours)) for name, ours in sides.items()
            ]
            scores = await measure_in_turns(f"{store}, {figure}", candidates, rounds=rounds, slices=slices)
            ratio = scores["waking"].ratio_to(scores["silent"])
            rates = [f"{scores[name].rate:,.0f}" for name in sides]
            rows.append([figure, *rates, f"{ratio:.3f}", f">= {TARGET}"])
            found.append({"figure": figure, "ratio": round(ratio, 3), "met": ratio >= TARGET, **rounds_of(scores)})
    print_table(await machine.version(), ["", "waking/s", "silent/s", "ratio", "target"], rows)
    return found


async def waiting(machine: Host, *, seconds: float, hints: int) -> list[dict[str, Any]]:
    """The share of a core that a process needs to wait, and how long after its commit a job is heard of."""
    async with machine.fresh() as database, side(database, waking=True) as ours:
        presence = await open_presence(database.url)
        await presence.wait(0.2)
        begun, used = time.perf_counter(), time.process_time()
        while time.perf_counter() - begun < seconds:
            await presence.wait(1)
        share = (time.process_time() - used) / (time.perf_counter() - begun)
        late = sorted([await _heard_after(ours, presence) for _ in range(hints)])
        await presence.close()
    p50, p99 = quantiles(late, n=100, method="inclusive")[49::49]
    print_table(
        "A process that waits",
        ["share of a core", "heard after, p50", "p99"],
        [[f"{share:.3%}", f"{p50 * 1e3:.1f} ms", f"{p99 * 1e3:.1f} ms"]],
    )
    return [{"figure": "waiting", "share": share, "met": share <= CORE_MAX, "heard_after": [p50, p99]}]


async def _heard_after(ours: EngineCalls, presence: Any) -> float:
    while await presence.wait(0.06):  # earlier hints
        continue
    listening = asyncio.create_task(presence.wait(5))
    await asyncio.sleep(0)
    await create(ours, calls=1, by=1)
    committed = time.perf_counter()
    assert await listening
    return time.perf_counter() - committed


async def measure(options: argparse.Namespace) -> bool:
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            sizes = (
                {"rounds": 1, "slices": 1, "calls": 10} if options.quick else {"rounds": 25, "slices": 4, "calls": 100}
            )
            stores[store] = await enqueueing(store, machine, **sizes)
            seconds, hints = (0.5, 5) if options.quick else (10, 100)
            stores[store] += await waiting(machine, seconds=seconds, hints=hints)
    write_results(options.results, "hints", quick=options.quick, stores=stores)
    return options.quick or all(figure["met"] for results in stores.values() for figure in results)


def main(words: list[str] | None = None) -> int:
    parser = arguments(__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--listen", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.listen:
        asyncio.run(listen(options.listen))
        return 0
    return 0 if asyncio.run(measure(options)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
