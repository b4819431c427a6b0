"""One of several processes on one SQLite file: creates jobs, then claims and completes until nothing is left.

    python -m tests.store.concurrent_process sqlite:////tmp/jobs.db 50

It prints the ids it created and the ids it claimed, as JSON.
"""

import asyncio
import json
import sys

from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.store import open_store


async def create_claim_and_complete(url: str, number: int) -> dict[str, list[str]]:
    engine = Engine(await open_store(url))
    worker = (await engine.workers.register(name="one of many")).id
    created = [(await engine.create(NewJob(type="echo", payload={"n": n}))).id for n in range(number)]
    claimed: list[str] = []
    while leases := await engine.claim(worker, limit=7):
        for lease in leases:
            await engine.complete(worker, lease.id, lease.token, lease.payload)
            claimed.append(lease.id)
    await engine.close()
    return {"created": created, "claimed": claimed}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(create_claim_and_complete(sys.argv[1], int(sys.argv[2])))))
