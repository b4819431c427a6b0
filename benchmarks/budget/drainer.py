"""A process that claims and completes through the engine: python -m benchmarks.budget.drainer URL BY

It says when it is ready, begins at a line of input, says how many jobs it did when none are left, and ends with its
input; until then its connections stay open, so that their CPU time can be read.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.implementations import TYPE
from holdfast.engine import Complete, Engine
from holdfast.store import open_store

WARM_BATCHES = 3


async def main(url: str, by: int) -> None:
    engine = Engine(await open_store(url))
    worker = (await engine.workers.register(name="bench")).id

    async def batch() -> int:
        leases = await engine.claim(worker, limit=by, types=[TYPE], at_once=True)
        if leases:
            await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases])
        return len(leases)

    for _ in range(WARM_BATCHES):
        await batch()
    _say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    done = 0
    while taken := await batch():
        done += taken
    _say(str(done))
    await asyncio.to_thread(sys.stdin.readline)
    await engine.close()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
