"""The queries of `holdfast top`: each counts the right jobs and reads no whole table."""

import json
import sqlite3
from typing import Any

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.lifecycle import State
from holdfast.lifecycle.default import DEFAULT
from holdfast.model import Liveness, NewJob
from holdfast.store import Row, q
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES, SQLITE, render
from tests.engine.log import settled
from tests.engine.steps import bring as bring_by
from tests.engine.steps import run

FAR = 2**62
HOUR = 3600.0


async def ask(engine: Engine, query: Query, **params: Any) -> list[Row]:
    return await engine.store.read(lambda tx: tx.all(query, **params))


async def bring(engine: Engine, worker: str, state: State) -> str:
    """A new job in this state. A retry comes in half an hour."""
    if state is not State.RETRYING:
        return (await bring_by(engine, worker, DEFAULT, state)).id
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E_BUSY", retry_after_seconds=HOUR / 2)
    return lease.id


async def one_of_each(engine: Engine, worker: str) -> dict[State, str]:
    return {state: await bring(engine, worker, state) for state in State}


async def counted(engine: Engine, limit: int = 100) -> dict[str, int]:
    rows = await ask(engine, q.top_counts, limit=limit, seconds=HOUR)
    return {row["kind"]: row["jobs"] for row in rows}


async def test_top_waiting_counts_jobs_that_are_due(engine: Engine, worker: str, clock: MovableClock) -> None:
    await one_of_each(engine, worker)
    await engine.create(NewJob(type="later", delay_seconds=60))
    began = clock.now()
    clock.advance(5)
    await engine.create(NewJob(type="younger"))
    rows = await ask(engine, q.top_waiting)
    assert [(row["queue"], row["jobs"], row["oldest_at"]) for row in rows] == [("default", 2, began)]


async def test_each_kind_is_counted_once(engine: Engine, worker: str) -> None:
    await one_of_each(engine, worker)
    await engine.create(NewJob(type="later", delay_seconds=60))
    assert await counted(engine) == {"created": 1, "delayed": 1, "retrying": 1, "dead": 1}


async def test_a_due_retry_is_counted_as_waiting(engine: Engine, worker: str, clock: MovableClock) -> None:
    await bring(engine, worker, State.RETRYING)
    clock.advance(HOUR / 2)
    await engine.maintenance.requeue_due()
    assert await counted(engine) == {}
    [row] = await ask(engine, q.top_waiting)
    assert row["jobs"] == 1


async def test_top_counts_ignores_old_dead_jobs(engine: Engine, worker: str, clock: MovableClock) -> None:
    await bring(engine, worker, State.DEAD)
    clock.advance(HOUR - 1)
    assert await counted(engine) == {"dead": 1}
    clock.advance(2)
    assert await counted(engine) == {}


async def test_top_counts_stops_at_its_limit(engine: Engine, worker: str) -> None:
    for _ in range(3):
        await engine.create(NewJob(type="later", delay_seconds=60))
        await bring(engine, worker, State.RETRYING)
        await bring(engine, worker, State.DEAD)
    assert await counted(engine, limit=2) == {"delayed": 2, "retrying": 2, "dead": 2}


async def test_top_held_and_top_running_list_running_jobs(engine: Engine, worker: str, clock: MovableClock) -> None:
    jobs = await one_of_each(engine, worker)
    clock.advance(1)
    second = await bring(engine, worker, State.RUNNING)
    [held] = await ask(engine, q.top_held)
    assert (held["queue"], held["lease_worker"], held["jobs"]) == ("default", worker, 2)
    longest = [row["id"] for row in await ask(engine, q.top_running, limit=9)]
    assert longest == [jobs[State.RUNNING], second]
    assert len(await ask(engine, q.top_running, limit=1)) == 1


async def test_top_workers_lists_live_and_recently_offline_workers(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    gone = (await engine.workers.register(name="gone")).id
    await engine.heartbeat(gone, [], liveness=Liveness.OFFLINE)
    assert [row["id"] for row in await ask(engine, q.top_workers, limit=9, seconds=60.0)] == [worker, gone]
    clock.advance(61)
    assert [row["id"] for row in await ask(engine, q.top_workers, limit=9, seconds=60.0)] == [worker]


async def flow(engine: Engine, **params: Any) -> dict[tuple[str, str], tuple[int, int]]:
    rows = await ask(engine, q.top_flow, **{"after": 0, "until": FAR, "limit": 100, **params})
    return {(row["queue"], row["way"]): (row["events"], row["happened"]) for row in rows}


async def test_top_flow_counts_created_and_ended_jobs(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="a", queue="mail"))
    await bring(engine, worker, State.SUCCEEDED)
    await settled(engine)
    begun = (await engine.reads.feed_end()).pos
    everything = await flow(engine)
    assert everything["mail", "in"] == (1, sum(events for events, _ in everything.values()))
    assert everything["default", "in"][0] == everything["default", "out"][0] == 1
    assert await flow(engine, after=begun) == {}
    for state in (State.DEAD, State.CANCELED, State.REJECTED):
        await bring(engine, worker, state)
    assert (await flow(engine, after=begun))["default", "out"][0] == 3
    assert (await flow(engine, until=begun)) == everything


async def test_top_flow_ignores_worker_events(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="a", queue="mail"))
    assert await engine.maintenance.record_worker_events() == 1
    assert await flow(engine) == {("mail", "in"): (1, 1)}


async def test_top_flow_samples_the_newest_events(engine: Engine) -> None:
    await engine.create_many([NewJob(type="a")] * 20)
    sample = await flow(engine, limit=10)
    assert sum(events for events, _ in sample.values()) == 10
    assert {happened for _, happened in sample.values()} == {(await flow(engine))["default", "in"][1]}


async def test_top_ended_lists_ended_jobs_newest_first(engine: Engine, worker: str) -> None:
    await one_of_each(engine, worker)
    await settled(engine)
    half = (await engine.reads.feed_end()).pos
    last = await bring(engine, worker, State.SUCCEEDED)

    async def ended(**params: Any) -> list[str]:
        rows = await ask(engine, q.top_ended, **{"after": 0, "until": FAR, "limit": 100, **params})
        return [row["job_id"] for row in rows]

    assert (await ended())[0] == last
    assert len(await ended()) == 5
    assert await ended(after=half) == [last]
    assert last not in await ended(until=half)
    assert await ended(limit=1) == [last]


# -- query plans ------------------------------------------------------------------------------------------------------

FEW_DUE = """
SET session_replication_role = replica;
INSERT INTO holdfast_jobs (id, tenant, type, queue, lane, lifecycle, policy, moves, state, due, priority, version,
                  epoch, max_attempts, run_at, created_at, updated_at, finished_at, lease_seconds, late_writes, payload,
                  moved_by)
SELECT gen_random_uuid(), 'default', 'a', 'default', 1, 'default', 1, 32767,
       CASE WHEN n % 1000 = 0 THEN 'queued' ELSE 'succeeded' END, CASE WHEN n % 1000 = 0 THEN TRUE END, 0, 1, 1, 5,
       now(), now(), now(), CASE WHEN n % 1000 <> 0 THEN now() END, 30, TRUE, '{}', 'system'
  FROM generate_series(1, 50000) AS n;
INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at)
SELECT lane, priority, FALSE, id, run_at FROM holdfast_jobs WHERE due;
INSERT INTO holdfast_events (job_id, seq, pos, tenant, at, verb, attempt, epoch, actor)
SELECT id, 1, row_number() OVER (), 'default', now(), 'create', 0, 0, 'client' FROM holdfast_jobs;
SET session_replication_role = DEFAULT;
ANALYZE;
"""


async def test_on_postgres_waiting_jobs_are_counted_without_a_sequential_scan(
    postgres: asyncpg.Connection,
) -> None:
    """Of jobs: the table of claimable ones is narrow, and all of its rows are counted."""
    await postgres.execute(FEW_DUE)
    for query in (q.top_waiting, q.top_counts):
        assert "Seq Scan on holdfast_jobs" not in await plan_on_postgres(postgres, query)


@pytest.mark.parametrize("query", [q.top_flow, q.top_ended], ids=lambda query: query.name)
async def test_on_postgres_events_are_found_by_position(postgres: asyncpg.Connection, query: Query) -> None:
    await postgres.execute(FEW_DUE)
    assert "Seq Scan on holdfast_events" not in await plan_on_postgres(postgres, query)


async def plan_on_postgres(connection: asyncpg.Connection, query: Query) -> str:
    statement = render(query, POSTGRES, 100)
    arguments = f"({', '.join(['NULL'] * len(statement.params))})" if statement.params else ""
    await connection.execute("SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE pinned AS {statement.text}")
    plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE pinned{arguments}")
    await connection.execute("DEALLOCATE pinned")
    return _scans(json.loads(plan)[0]["Plan"])


def _scans(node: dict[str, Any]) -> str:
    below = [_scans(inner) for inner in node.get("Plans", ())]
    return "\n".join([f"{node['Node Type']} on {node.get('Relation Name')}", *below])


@pytest.mark.parametrize("query", [q.top_waiting, q.top_flow, q.top_ended], ids=lambda query: query.name)
def test_on_sqlite_no_table_is_scanned(sqlite: sqlite3.Connection, query: Query) -> None:
    statement = render(query, SQLITE, 100)
    plan = sqlite.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params, 0)).fetchall()
    steps = [detail for *_, detail in plan if detail.startswith(("SCAN holdfast_jobs", "SCAN holdfast_events"))]
    assert [step for step in steps if "USING INDEX holdfast_jobs_claim" not in step] == []
