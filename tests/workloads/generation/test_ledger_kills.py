"""Processes that are killed before or after the commit of a move: the credits are where the job is. C-40, S11, K7.

Kills inside an execution are in test_killed_workers.py.
"""

import asyncio
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.lifecycle import State
from holdfast.store.migrate import migrate
from holdfast.workloads.generation import ext
from holdfast.workloads.generation.hooks import RUN
from tests.cli.processes import environment
from tests.worker.real_processes.harness import ROOT
from tests.workloads.generation import ledger_engines as on
from tests.workloads.generation.ledger_dying import MOVES, move

# The state of the newest job and its entries, after each move.
AFTER: dict[str, tuple[State | None, dict[str, int]]] = {
    "create": (State.QUEUED, {"reserve": 2}),
    "claim": (State.RUNNING, {"reserve": 2}),
    "publish": (State.SUCCEEDED, {"reserve": 2, "commit": 2}),
    "fail": (State.DEAD, {"reserve": 2, "release": 2}),
    "reject": (State.REJECTED, {"reserve": 2, "forfeit": 2}),
    "release": (State.QUEUED, {"reserve": 2}),
    "reap": (State.DEAD, {"reserve": 2, "release": 2}),
    "cancel": (State.CANCELED, {"reserve": 2, "release": 2}),
    "redrive": (State.QUEUED, {"reserve": 2}),
    "grant": (None, {}),
}


async def prepared(engine: Engine, needs: str) -> dict[str, str]:
    worker = await on.worker(engine)
    if needs == "nothing":
        return {"worker": worker}
    if needs == "queued":
        return {"worker": worker, "id": (await on.create(engine, count=2)).id}
    lease = await on.claimed(engine, worker, count=2, max_attempts=1)
    if needs == "dead":
        await engine.fail(worker, lease.id, lease.token, "E", permanent=True)
    return {"worker": worker, "id": lease.id, "token": lease.token}


async def newest(engine: Engine) -> tuple[State | None, dict[str, int]]:
    jobs = (await engine.reads.page()).jobs
    if not jobs:
        return None, {}
    job = max(jobs, key=lambda job: job.id)
    return job.state, await on.entries_of(engine, job.id)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", MOVES)
async def test_a_killed_process_leaves_the_credits_where_the_job_is(store_url: str, name: str, when: str) -> None:
    await migrate(store_url, [ext])
    with on.generation_service(store_url, Clock()):
        async with on.opened(store_url, Clock()) as engine:
            job = await prepared(engine, MOVES[name])
            before, had = await newest(engine), await on.has(engine)
            await killed(store_url, name, when, job)

            after = AFTER[name]
            assert await newest(engine) == (before if when == "before" else after)
            if when == "before":
                assert await on.has(engine) == had
                await on.check_books(engine, "after the kill", cost=1)
                await move(engine, name, job)
            assert await newest(engine) == after
            if name == "grant":
                await move(engine, name, job)  # again, with its key
                assert await on.has(engine) == (105, 0)
            await everything_ends(engine, job["worker"])
            books = await on.check_books(engine, "at the end", cost=1)
            assert {row["reserved"] for row in books.accounts} == {0}


async def killed(url: str, name: str, when: str, job: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tests.workloads.generation.ledger_dying", url, name, when, json.dumps(job)]
    run: dict[str, Any] = {"cwd": ROOT, "env": environment(), "capture_output": True, "check": False}
    done = await asyncio.to_thread(subprocess.run, command, **run)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


async def everything_ends(engine: Engine, worker: str) -> None:
    for lease in await engine.claim(worker, types=[RUN], limit=10):
        await on.finish(engine, worker, lease, images=1)
    for job in (await engine.reads.page()).jobs:
        if job.state is State.RUNNING:  # claimed by the process that was killed
            await engine.cancel(job.id)
            await engine.release(worker, job.id, await token(engine, job.id))


async def token(engine: Engine, job_id: str) -> str:
    query = on.Query("token", "SELECT lease_token FROM holdfast_jobs WHERE id = :id")
    [row] = await engine.store.read(lambda tx: tx.all(query, id=job_id))
    return str(row["lease_token"])
