"""A process that requests generations, all at once: `python -m tests.workloads.generation.ledger_rush URL SETTINGS`.

SETTINGS is JSON: those of the service. It reads one line of JSON, the users of the requests, and prints how many had
which outcome.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence

from holdfast.clock import Clock
from holdfast.engine import Created, Engine
from holdfast.errors import HoldfastError
from tests.workloads.generation import ledger_engines as on


async def rush(engines: Sequence[Engine], users: Sequence[str]) -> Counter[str]:
    """One request for each, in turn to each engine. How many were `created`, or refused with which code."""

    async def one(engine: Engine, user: str) -> str:
        try:
            made = await on.create(engine, user)
        except HoldfastError as refusal:
            return refusal.code
        assert isinstance(made, Created)
        assert not made.existed
        return f"created for {user}"

    turns = [(engines[number % len(engines)], user) for number, user in enumerate(users)]
    return Counter(await asyncio.gather(*(one(*turn) for turn in turns)))


async def main(url: str, settings: str) -> None:
    with on.generation_service(url, Clock(), **json.loads(settings)):
        async with on.opened(url, Clock()) as engine:
            print("ready", flush=True)
            users = json.loads(await asyncio.to_thread(sys.stdin.readline))
            print(json.dumps(await rush([engine], users)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
