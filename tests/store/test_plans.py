"""The plans of the hot statements, pinned: claim, heartbeat, complete, reap and requeue never read the whole table."""

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any, cast

import pytest

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.store import PostgresStore, Tx
from holdfast.store.queries import Query, q
from holdfast.store.render import POSTGRES, SQLITE, history_afterwards, render

# Ready jobs in fifty lanes of two tenants, some delayed, a few running, retrying or dead, the rest finished. Half of
# the jobs in batches of claims have ended.
CROWD = """
SET session_replication_role = replica;
INSERT INTO holdfast_workers (id, kind, capabilities, offers, metadata, liveness, registered_at, heartbeat_seconds,
                     offline_seconds)
SELECT gen_random_uuid(), 'local', '{}', '[]', '{}', 'idle', now(), 10, 90 FROM generate_series(1, 20);
INSERT INTO holdfast_tenants (name) VALUES ('default'), ('other') ON CONFLICT DO NOTHING;
INSERT INTO holdfast_lanes (id, digest, tenant, queue, type, requires, prefers, defer_seconds)
SELECT (1 + n % 2) * 4294967296 + n, 'digest ' || n, CASE n % 2 WHEN 0 THEN 'default' ELSE 'other' END, 'default',
       'type ' || n, '[]', '[]', 0 FROM generate_series(0, 49) AS n;
INSERT INTO holdfast_policies (digest, body, moves, waits_for_offline, offline_seconds, cancel_grace_seconds)
VALUES ('d', '{}', 32767, FALSE, 90, 30);
INSERT INTO holdfast_jobs (id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, parked,
                  parked_at, priority, version, epoch, max_attempts, run_at, created_at, updated_at, finished_at,
                  lease_seconds, late_writes, lease_worker, lease_token, lease_expires_at, payload)
SELECT gen_random_uuid(), 'default', 'type ' || n % 50, 'default', (1 + n % 2) * 4294967296 + n % 50, 'default', 1,
       32767, state, 'system', CASE state WHEN 'queued' THEN n % 10 <> 0 WHEN 'retrying' THEN FALSE END,
       CASE WHEN state = 'queued' AND n % 10 = 0 THEN 'waiting' WHEN state IN ('retrying', 'dead') THEN state END,
       CASE WHEN state = 'queued' AND n % 10 = 0 OR state IN ('retrying', 'dead') THEN now() END,
       n % 7, 1, 1, 5, now() + n % 10 * interval '1 second', now(),
       now(), CASE WHEN state IN ('succeeded', 'dead') THEN now() END, 30, TRUE,
       CASE WHEN state = 'running' THEN (SELECT id FROM holdfast_workers LIMIT 1) END,
       CASE WHEN state = 'running' THEN gen_random_uuid() END, CASE WHEN state = 'running' THEN now() END, '{}'
  FROM (SELECT n, CASE WHEN n % 100 = 1 THEN 'running'
                       WHEN n % 100 = 3 THEN 'retrying' WHEN n % 100 = 5 THEN 'dead'
                       WHEN n % 2 = 0 THEN 'queued' ELSE 'succeeded' END AS state
          FROM generate_series(1, 50000) AS n) AS crowd;
INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at)
SELECT lane, priority, needs IS NOT NULL, id, run_at FROM holdfast_jobs WHERE due;
INSERT INTO holdfast_claim_batches (claimed_at, expires_at, worker, ids)
SELECT now(), now(), (SELECT id FROM holdfast_workers LIMIT 1), array_agg(id)
  FROM (SELECT id, state, row_number() OVER (PARTITION BY state) AS n FROM holdfast_jobs) AS jobs
 WHERE state = 'running' OR state = 'succeeded' AND n <= 500
 GROUP BY n / 10;
SET session_replication_role = DEFAULT;
"""

# The statement, and the ways by which it may find its jobs: the claimable ones (`ready`), the `running` ones, a list of
# `parked` ones, by their id (`pkey`), or by another index of jobs.
PINNED = {
    "open_lanes": {"ready", "pkey", "running"},
    "claim_jobs": {"ready", "pkey"},
    "claimable_jobs": {"ready", "pkey"},
    "renew_leases": {"pkey"},
    "complete_jobs": {"pkey"},
    "retry_jobs": {"pkey"},
    "held_jobs": {"pkey"},
    "hold_job": {"pkey"},
    "lost_jobs": {"running"},
    "overdue": {"parked", "running"},
    "claimable": {"ready", "pkey", "parked", "running"},
    "open_work": {"ready", "pkey"},
    "next_open_work": {"ready", "parked", "running"},
    "policies_of_jobs": {"pkey"},
    "instances": {"running"},
    "beat_worker": {"running"},
    "due_work": {"parked", "running"},
    "held_by": {"running"},
    "still_held": {"pkey"},
    "reap_to_retry": {"pkey"},
    "mark_due_jobs": {"parked", "pkey"},
    "mark_due_parents": {"parked", "pkey", "of_parent"},
    "children": {"of_parent"},
    "requeue_due": {"parked", "pkey"},
    "due_retries": {"parked"},
    "orphans": {"parked"},
    "jobs_by_key": {"key_once", "pkey"},
    "job": {"pkey"},
    "summaries": {"pkey"},
    "held_by_worker": {"running"},
    "changed_workers": {"running"},
    "jobs_of_worker": {"running"},
    "successors": {"redriven"},
    "leases_long_over": {"running"},
    "waiting_lanes": {"ready"},
    "ahead_in_lane": {"ready"},
    "top_counts": {"parked"},
    "health": {"parked", "ready", "running"},
    "queue_stats": {"ready", "parked", "running"},
    "jobs_that_need": {"ready", "parked", "running", "pkey"},
    "needs_that_name": {"ready", "parked", "running", "pkey"},
    "change_needs": {"ready", "parked", "running", "pkey"},
    "adopt_lane": {"ready", "pkey"},
    "top_waiting": {"ready"},
    "top_held": {"running"},
    "top_running": {"running"},
    "top_flow": {"pkey"},
    "top_ended": {"pkey"},
    "prunable_unhappy": {"parked"},
    "overdue_unhappy": {"parked"},
    "recent_deaths": {"parked"},
    "forget_workers": {"running"},
}
NEEDED = {
    "open_lanes": "ready",
    "claim_jobs": "ready",
    "claimable": "ready",
    "open_work": "ready",
    "mark_due_jobs": "parked",
    "mark_due_parents": "parked",
    "requeue_due": "parked",
    "due_retries": "parked",
    "jobs_by_key": "key_once",
}
COUNT_ALL_READY = {"top_waiting", "queue_stats", "health", "jobs_that_need", "needs_that_name", "change_needs"}


# By their ids, whatever the statistics say: the index of running jobs may be full of those that ran.
BY_ID = ("renew_leases", "complete_jobs", "retry_jobs", "held_jobs", "reap_to_retry")


def unexpected(ways: dict[str, set[str]], running: str = "running") -> dict[str, set[str]]:
    """The statements that reach jobs by another way than theirs."""
    allowed = {name: {running if way == "running" else way for way in pinned} for name, pinned in PINNED.items()}
    apart = {name: found - allowed[name] for name, found in ways.items()}
    return {name: others for name, others in apart.items() if others}


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for inner in plan.get("Plans", ()) for node in nodes(inner))]


async def plan_on_postgres(store: PostgresStore, name: str, filters: tuple[str, ...] = ()) -> dict[str, Any]:
    """The generic plan of the store's own connections."""
    statement = render(attrgetter(name)(q), POSTGRES, 100, filters)
    nothing = f"({', '.join(['NULL'] * len(statement.params))})" if statement.params else ""

    async def explain(tx: Tx) -> Any:
        await tx.all(Query("generic", "SET LOCAL plan_cache_mode = force_generic_plan"))
        await tx.all(Query("prepare", f"PREPARE pinned AS {statement.text}"))
        [[plan]] = await tx.all(Query("explain", f"EXPLAIN (FORMAT JSON) EXECUTE pinned{nothing}"))
        await tx.all(Query("forget", "DEALLOCATE pinned"))
        return json.loads(plan)[0]["Plan"]

    return cast("dict[str, Any]", await store.write(explain))


async def scans_on_postgres(store: PostgresStore, name: str) -> list[dict[str, Any]]:
    """How it reaches jobs. The batches of claims have no index: they are few, and maintenance drops them."""
    scans = [node for node in nodes(await plan_on_postgres(store, name)) if "Scan" in node["Node Type"]]
    return [scan for scan in scans if scan.get("Relation Name") in ("holdfast_jobs", "holdfast_ready")]


async def ways_on_postgres(store: PostgresStore, name: str) -> set[str]:
    """By which index, or by what kind of scan. The running jobs are found by the ids in the batches of claims."""
    return {way_of(scan, name) for scan in await scans_on_postgres(store, name)}


def way_of(scan: dict[str, Any], name: str) -> str:
    index = str(scan.get("Index Name", ""))
    whole = "Index Cond" not in scan  # with sequential scans disabled, this is one
    if index == "holdfast_ready_order" and (not whole or name in COUNT_ALL_READY):
        return "ready"
    if scan["Relation Name"] == "holdfast_ready" and (name in COUNT_ALL_READY or scan["Node Type"] == "Tid Scan"):
        return "ready"
    if not index or whole:
        return f"{scan['Node Type']} of {scan['Relation Name']} {index}".strip()
    return index.removeprefix("holdfast_jobs_")


@pytest.fixture
async def store(fresh_postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(fresh_postgres_url, Clock(), Ids())
    yield store
    await store.close()


async def test_postgres_uses_only_the_expected_indexes(store: PostgresStore, postgres: Any) -> None:
    """With statistics, and with the generic plan that a long-lived connection ends up with."""
    await postgres.execute(CROWD + "ANALYZE")
    ways = {name: await ways_on_postgres(store, name) for name in PINNED}
    assert unexpected(ways, running="pkey") == {}
    assert {name: ways[name] for name in BY_ID} == {name: {"pkey"} for name in BY_ID}
    assert [name for name, index in NEEDED.items() if index not in ways[name]] == []
    assert all(ways.values())


async def test_postgres_uses_the_expected_indexes_before_the_first_analyze(store: PostgresStore, postgres: Any) -> None:
    """The plans must not depend on statistics that are not there yet."""
    await disable_autovacuum(postgres)
    for rows in ("SELECT 1", CROWD):  # with empty tables, too: a long-lived connection keeps that plan
        await postgres.execute(rows)
        ways = {name: await ways_on_postgres(store, name) for name in PINNED}
        assert unexpected(ways, running="pkey") == {}


async def disable_autovacuum(postgres: Any) -> None:
    for table in ("holdfast_jobs", "holdfast_ready", "holdfast_claim_batches", "holdfast_events"):
        await postgres.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = FALSE)")


LANE_QUERIES = ("open_lanes", "claimable", "open_work")


async def test_lane_queries_use_no_disabled_scan(store: PostgresStore, postgres: Any) -> None:
    """A disabled scan costs ten billion: other plans could not be compared, and each claim would be JIT-compiled. The
    batches of claims have no index; they are read once, before anything else: their cost is the same in every plan."""
    for statistics in ("SELECT 1", "ANALYZE", CROWD, "ANALYZE"):
        await postgres.execute(statistics)
        for name in LANE_QUERIES:
            scans = nodes(await plan_on_postgres(store, name))
            assert {scan["Relation Name"] for scan in scans if scan["Node Type"] == "Seq Scan"} <= {BATCHES}, name
            once = [node for node in scans if node.get("Parent Relationship") == "InitPlan"]
            read_once = [scan for node in once for scan in nodes(node) if scan.get("Relation Name") == BATCHES]
            batches = [scan for scan in scans if scan.get("Relation Name") == BATCHES]
            assert [scan for scan in batches if scan not in read_once] == [], name
    [[jit]] = await store.read(lambda tx: tx.all(Query("jit", "SHOW jit")))
    assert jit == "off"


BATCHES = "holdfast_claim_batches"


async def test_postgres_claims_behind_the_last_job_from_the_list_of_claimable_jobs(
    store: PostgresStore, postgres: Any
) -> None:
    """And not from all jobs in the order of their ids, which begins with those that have ended."""
    await postgres.execute(CROWD)
    for name in ("claim_jobs.behind_last", "claim_jobs.behind_last.for_one"):
        scans = await scans_on_postgres(store, name)
        ready = [scan["Index Cond"] for scan in scans if scan.get("Index Name") == "holdfast_ready_order"]
        assert [condition for condition in ready if "priority =" in condition and "id > $" in condition]
        jobs = [scan["Index Cond"] for scan in scans if scan.get("Index Name") == "holdfast_jobs_pkey"]
        assert jobs
        assert all("id = " in condition for condition in jobs)


async def test_postgres_reads_only_lanes_that_have_jobs(store: PostgresStore, postgres: Any) -> None:
    """There may be thousands of others. Also before the first ANALYZE: a long-lived connection keeps its plan."""
    await disable_autovacuum(postgres)
    many = CROWD.replace("generate_series(0, 49)", "generate_series(0, 4999)")
    for statistics in ("SELECT 1", many, "ANALYZE"):
        await postgres.execute(statistics)
        for name in LANE_QUERIES:
            scans = [
                n for n in nodes(await plan_on_postgres(store, name)) if n.get("Relation Name") == "holdfast_lanes"
            ]
            assert scans
            whole = [scan for scan in scans if "Index Cond" not in scan]
            # `open_work` looks up the queues and types that are waited for, if more lanes have jobs than it may list.
            assert len(whole) == (name == "open_work"), (name, statistics[:9])


async def test_postgres_finds_jobs_by_id_although_statistics_show_no_running_job(
    store: PostgresStore, postgres: Any
) -> None:
    """Statistics from an idle moment make reading the whole index of running jobs look free."""
    await disable_autovacuum(postgres)
    await postgres.execute(CROWD.replace("WHEN n % 100 = 1 THEN 'running'", "") + "ANALYZE")
    ways = {name: await ways_on_postgres(store, name) for name in BY_ID}
    assert ways == {name: {"pkey"} for name in BY_ID}


async def test_postgres_finds_keys_by_index_although_statistics_show_none(store: PostgresStore, postgres: Any) -> None:
    """Statistics from before the first key make reading the whole index of keys look free."""
    await postgres.execute(CROWD + "ANALYZE")
    found = {scan["Index Name"]: scan["Index Cond"] for scan in await scans_on_postgres(store, "jobs_by_key")}
    assert "idempotency_key = " in found["holdfast_jobs_key_once"]
    assert found["holdfast_jobs_pkey"].startswith("(id = ")


async def test_postgres_finds_failures_in_the_log_by_their_index(store: PostgresStore, postgres: Any) -> None:
    """They are few among many events, and looked for every few seconds."""
    await postgres.execute(
        "INSERT INTO holdfast_events (job_id, seq, pos, tenant, at, verb, from_state, to_state, attempt, epoch, actor)"
        " SELECT gen_random_uuid(), 1, n, 'default', now(), CASE WHEN n % 100 = 0 THEN 'fail' ELSE 'complete' END,"
        " 'running', 'succeeded', 1, 1, 'worker' FROM generate_series(1, 20000) AS n; ANALYZE"
    )
    plan = await plan_on_postgres(store, "failures")
    found = {node.get("Index Name") for node in nodes(plan) if node.get("Relation Name") == "holdfast_events"}
    assert found == {"holdfast_events_failures"}
    index = await postgres.fetchval("SELECT indexdef FROM pg_indexes WHERE indexname = 'holdfast_events_failures'")
    assert "WHERE ((verb = 'fail'::text) OR (verb = 'reap'::text))" in index, "no other event pays for it"


def test_sqlite_finds_failures_in_the_log_by_their_index(sqlite: sqlite3.Connection) -> None:
    statement = render(q.failures, SQLITE, 100)
    plan = sqlite.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params)).fetchall()
    assert "holdfast_events_failures" in " ".join(detail for *_, detail in plan)


def test_sqlite_inserts_a_plain_job_and_its_event_without_a_temporary_table(sqlite: sqlite3.Connection) -> None:
    """Each would cost as much as an index. (The trigger for jobs with a key has one.)"""
    for text in (render(q.insert_plain_job, SQLITE).text, *history_afterwards(q.insert_plain_job, one=True)):
        steps = steps_on_sqlite(sqlite, text)
        own = [step for place, step in enumerate(steps) if step["addr"] == place]
        assert own[-1]["opcode"] == "Goto"
        assert not [step for step in own if step["opcode"] == "OpenEphemeral"]


@pytest.mark.parametrize("column", ["state", "moved_by", "due", "finished_at"])
def test_no_check_or_trigger_of_jobs_makes_sqlite_index_a_list(sqlite: sqlite3.Connection, column: str) -> None:
    steps = steps_on_sqlite(sqlite, f"UPDATE holdfast_jobs SET {column} = :value WHERE id = :id")
    assert not [step for step in steps if step["opcode"] == "OpenEphemeral" and step["p4"]], "a list of IN has a key"


def steps_on_sqlite(connection: sqlite3.Connection, text: str) -> list[dict[str, Any]]:
    """Of the statement, then of its triggers."""
    cursor = connection.execute(f"EXPLAIN {text}", dict.fromkeys(re.findall(r":([a-z_]+)", text)))
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, step, strict=True)) for step in cursor]


LISTS = {"subject": "holdfast_jobs_of_subject", "parent_id": "holdfast_jobs_of_parent"}


@pytest.mark.parametrize("filtered", LISTS)
async def test_postgres_lists_jobs_of_a_subject_or_a_parent_by_its_index(
    store: PostgresStore, postgres: Any, filtered: str
) -> None:
    some = "UPDATE holdfast_jobs SET subject = 'video ' || priority || lane, parent_id = id WHERE state = 'running'"
    await postgres.execute(f"{CROWD}; SET session_replication_role = replica; {some}; ANALYZE")
    for name in ("page_jobs", "page_summaries"):
        plan = await plan_on_postgres(store, name, ("tenant", filtered))
        assert {node["Index Name"] for node in nodes(plan) if "Index Name" in node} == {LISTS[filtered]}


@pytest.mark.parametrize("filtered", LISTS)
def test_sqlite_lists_jobs_of_a_subject_or_a_parent_by_its_index(sqlite: sqlite3.Connection, filtered: str) -> None:
    for name in ("page_jobs", "page_summaries"):
        assert ways_on_sqlite(sqlite, name, ("tenant", filtered)) == {LISTS[filtered].removeprefix("holdfast_jobs_")}


def ways_on_sqlite(connection: sqlite3.Connection, name: str, filters: tuple[str, ...] = ()) -> set[str]:
    statement = render(getattr(q, name), SQLITE, 100, filters)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params)).fetchall()
    found = set()
    for *_, detail in plan:
        if step := re.match(
            r"(SCAN|SEARCH) (holdfast_(?:jobs|ready|running)|head|held|holder|mine|j)\b"
            r"(?:.*USING (?:COVERING )?INDEX (\S+))?",
            detail,
        ):
            found.add(step[3] or step[0])
    return {SQLITE_NAMES.get(name, name.removeprefix("holdfast_jobs_")) for name in found}


SQLITE_NAMES = {"sqlite_autoindex_holdfast_jobs_1": "pkey", "holdfast_jobs_claim": "ready"}


@pytest.mark.parametrize("analyzed", [False, True])
def test_sqlite_uses_only_the_expected_indexes(sqlite: sqlite3.Connection, analyzed: bool) -> None:
    if analyzed:
        sqlite.execute("ANALYZE")
    ways = {name: ways_on_sqlite(sqlite, name) for name in PINNED}
    assert unexpected(ways) == {}
    assert [name for name, index in NEEDED.items() if index not in ways[name]] == []
    assert all(ways.values())
