"""Clients that enqueue small jobs and retry until each is acknowledged, each with its own idempotency key.

    python -m tests.worker.real_databases.load 500

is one of them as a process: it hands in that many and prints their ids.
"""

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.errors import StoreError
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import eventually

PATIENCE_SECONDS = 60
LASTS_SECONDS = 0.01


class Caller:
    def __init__(self, *, rests: float = 0) -> None:
        self.ids: list[str] = []
        self.refusals = 0
        self.stopping = False
        self._name = secrets.token_hex(4)
        self._rests = rests

    async def hand_in(self, number: int) -> None:
        for _ in range(number):
            if self.stopping:
                return
            async with asyncio.timeout(PATIENCE_SECONDS):
                self.ids.append(await self._insist(f"{self._name}-{len(self.ids)}"))
            await asyncio.sleep(self._rests)

    async def _insist(self, key: str) -> str:
        while True:
            try:
                job = await jobs.on_the_loop.options(idempotency_key=key).enqueue(seconds=LASTS_SECONDS)
                return job.id
            except StoreError:
                self.refusals += 1
                await asyncio.sleep(0.05)


class Load:
    def __init__(self, callers: list[Caller]) -> None:
        self._callers = callers

    @property
    def ids(self) -> list[str]:
        return [job for caller in self._callers for job in caller.ids]

    @property
    def refusals(self) -> int:
        return sum(caller.refusals for caller in self._callers)

    async def more(self, number: int = 50) -> None:
        """So many were acknowledged since."""
        enough = len(self.ids) + number
        await eventually(lambda: len(self.ids) >= enough)


@asynccontextmanager
async def load(*, callers: int = 5, most: int = 1500) -> AsyncIterator[Load]:
    """From this process, until the end of the block; what was begun is acknowledged before it ends."""
    crowd = [Caller(rests=0.02) for _ in range(callers)]
    calling = [asyncio.create_task(caller.hand_in(most // callers)) for caller in crowd]
    try:
        yield Load(crowd)
    finally:
        for caller in crowd:
            caller.stopping = True
        await asyncio.gather(*calling)


async def _main(number: int) -> None:
    caller = Caller()
    async with jobs.app:
        await caller.hand_in(number)
    print(json.dumps(caller.ids))


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
