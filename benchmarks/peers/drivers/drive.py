"""The command line of every Python driver: python drive.py MODULE one|bulk|crowd|latency|prepare|work [options].

A driver has `opened`, a context that gives its `Calls`; perhaps `prepare`; and `work` where the peer has no command for
that. The last line of the output is JSON."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import random
import time
from collections.abc import Awaitable
from typing import Any

from common import Calls, Opened, marked

CROWD = 20
SAMPLE_SECONDS = 10.0  # a sample of latency that takes longer ends the cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("command", choices=["one", "bulk", "crowd", "latency", "prepare", "work"])
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--by", type=int, default=1000, help="jobs in one call of bulk")
    parser.add_argument("--warm", type=int, default=0, help="jobs before the clock starts")
    parser.add_argument("--data", default="x" * 100)
    options = parser.parse_args()
    driver = importlib.import_module(options.module)
    if options.command in ("prepare", "work"):
        asked = getattr(driver, options.command, None)
        if asked and inspect.isawaitable(outcome := asked()):
            asyncio.run(_finish(outcome))
    else:
        print(json.dumps(asyncio.run(_measured(driver.opened, options))))


async def _measured(opened: Opened, options: argparse.Namespace) -> dict[str, Any]:
    async with opened(CROWD if options.command == "crowd" else 1) as calls:
        if options.command == "latency":
            return {"sent": await _latency(calls, options)}
        step = {"one": _one_by_one, "bulk": _bulk, "crowd": _crowd}[options.command]
        if options.warm:
            few = argparse.Namespace(count=options.warm, by=options.warm, data=options.data)
            await step(calls, few, time.monotonic() + options.seconds)
        began = time.monotonic()
        jobs = await step(calls, options, began + options.seconds)
        return {"jobs": jobs, "seconds": time.monotonic() - began}


async def _one_by_one(calls: Calls, options: argparse.Namespace, deadline: float) -> int:
    for done in range(options.count):
        if time.monotonic() > deadline:
            return done
        await _finish(calls.one(options.data))
    return int(options.count)


async def _bulk(calls: Calls, options: argparse.Namespace, deadline: float) -> int:
    assert calls.bulk
    done = 0
    while done < options.count and time.monotonic() < deadline:
        size = min(options.by, options.count - done)
        await _finish(calls.bulk([options.data] * size))
        done += size
    return done


async def _crowd(calls: Calls, options: argparse.Namespace, deadline: float) -> int:
    share = argparse.Namespace(count=options.count // CROWD, data=options.data)
    return sum(await asyncio.gather(*(_one_by_one(calls, share, deadline) for _ in range(CROWD))))


async def _latency(calls: Calls, options: argparse.Namespace) -> list[int]:
    """The moments of the calls, in order. Each waits until the handler of the one before has begun, and then by chance,
    up to twice as long as that took, so that a peer which polls is met at every point of its interval."""
    sent: list[int] = []
    before, last = marked(), 0.0
    deadline = time.monotonic() + options.seconds
    while len(sent) < options.count and time.monotonic() < deadline:
        await asyncio.sleep(random.uniform(0.02, 0.08) + random.uniform(0.0, 2 * last))
        sent.append(time.monotonic_ns())
        await _finish(calls.one(options.data))
        if not await _marked(before + len(sent)):
            break
        last = (time.monotonic_ns() - sent[-1]) / 1e9
    return sent


async def _marked(count: int) -> bool:
    deadline = time.monotonic() + SAMPLE_SECONDS
    while marked() < count:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.002)
    return True


async def _finish(outcome: Awaitable[Any] | Any) -> None:
    if inspect.isawaitable(outcome):
        await outcome


if __name__ == "__main__":
    main()
