"""What `holdfast bench` asks: only about jobs of its own type, and only about those of this run."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.ids import uuid7_floor
from holdfast.lifecycle import FINAL, State
from holdfast.lifecycle.default import DEFAULT
from holdfast.model import NewJob
from holdfast.store import Row, q
from holdfast.store.ceiling import TAKEN_AT_ONCE, Ceiling
from holdfast.store.queries import Query
from tests.engine.steps import Standing, bring, run


async def ask(engine: Engine, query: Query, **params: Any) -> list[Row]:
    return await engine.store.read(lambda tx: tx.all(query, **params))


async def one_of_each(engine: Engine, worker: str) -> dict[State, Standing]:
    return {state: await bring(engine, worker, DEFAULT, state) for state in State}


@pytest.mark.parametrize(("state", "waiting", "running"), [(State.QUEUED, 1, 0), (State.RUNNING, 0, 1)])
async def test_left_is_what_waits_or_runs(
    engine: Engine, worker: str, state: State, waiting: int, running: int
) -> None:
    await one_of_each(engine, worker)
    job = await bring(engine, worker, DEFAULT, state)
    [left] = await ask(engine, q.bench_left, type=job.type)
    assert (left["waiting"], left["running"]) == (waiting, running)


async def test_waiting_is_what_waits_of_this_type(engine: Engine, worker: str) -> None:
    await one_of_each(engine, worker)
    mine = [(await engine.create(NewJob(type="mine"))).id for _ in range(3)]
    await run(engine, worker, type="mine")
    assert [row["id"] for row in await ask(engine, q.bench_waiting, type="mine", limit=9)] == mine[1:] + mine[3:]
    assert len(await ask(engine, q.bench_waiting, type="mine", limit=1)) == 1
