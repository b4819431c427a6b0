"""A process that moves credits and kills itself: `python -m tests.workloads.generation.ledger_dying URL MOVE WHEN JOB`.

WHEN is `before` or `after` the commit of what the hooks of the service have written. `JOB` is what `prepare` has made,
as JSON.
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.extend import Tx
from holdfast.model.reports import Complete, HeldLease
from holdfast.store.open_transaction import transaction
from holdfast.workloads.generation.hooks import RUN
from holdfast.workloads.generation.service import app
from tests.workloads.generation import ledger_engines as on
from tests.workloads.generation.ledger_histories import EFFECTS

# What each needs before.
MOVES = {
    "create": "nothing",
    "claim": "queued",
    "publish": "running",
    "fail": "running",
    "reject": "running",
    "release": "running",
    "reap": "running",
    "cancel": "queued",
    "redrive": "dead",
    "grant": "nothing",
}


async def move(engine: Engine, name: str, job: dict[str, str]) -> None:
    match name:
        case "create":
            await on.create(engine, "ann", count=2)
        case "claim":
            await engine.claim(job["worker"], types=[RUN])
        case "publish":
            async with transaction(engine.store) as tx:
                within = engine.within(tx)
                await within.hold(HeldLease(job["id"], job["token"]))
                await on.put_assets(tx, job["id"], 2)
                await within.complete(job["worker"], Complete(job["id"], job["token"], {}))
        case "fail":
            await engine.fail(job["worker"], job["id"], job["token"], "E", permanent=True)
        case "reject":
            await engine.reject(job["worker"], job["id"], job["token"], "image_rejected")
        case "release":
            await engine.release(job["worker"], job["id"], job["token"])
        case "reap":
            await engine.maintenance.reap(gone=["here"])
        case "cancel":
            await engine.cancel(job["id"])
        case "redrive":
            await engine.redrive(job["id"])
        case "grant":
            await on.grant(engine, "ann", 5, "a key")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def make_dying(store: Any, when: str, touched: list[str]) -> None:
    write = store.write

    async def dying_write(work: Any, **how: Any) -> Any:
        async def doomed(tx: Tx) -> Any:
            answer = await work(tx)
            if touched and when == "before":
                await tx.flush()
                die()
            return answer

        answer = await write(doomed, **how)
        if touched and when == "after":
            die()
        return answer

    store.write = dying_write


async def main(url: str, name: str, when: str, job: str) -> None:
    touched: list[str] = ["grant"] if name == "grant" else []

    async def touch(tx: Tx, verb: str, _job: Any) -> None:
        """The last effect of a transition."""
        if when == "before":
            await tx.flush()
            die()
        touched.append(verb)

    with on.generation_service(url, Clock()):
        hooks = app.hooks()
        hooks.effect("generation", EFFECTS, [RUN], touch)
        engine = await on.open_engine(url, Clock(), hooks=hooks)
        make_dying(engine.store, when, touched)
        await move(engine, name, json.loads(job))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
