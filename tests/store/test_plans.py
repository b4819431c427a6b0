"""The plans of the hot statements, pinned: claim, heartbeat, complete, reap and requeue never read the whole table."""

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.store import PostgresStore, Tx
from holdfast.store.queries import Query, q
from holdfast.store.render import POSTGRES, SQLITE, render

# Ready jobs in fifty lanes, some delayed, a few running, the rest finished.
CROWD = """
SET session_replication_role = replica;
INSERT INTO holdfast_workers (id, kind, capabilities, offers, metadata, liveness, registered_at, heartbeat_seconds,
                     offline_seconds)
SELECT gen_random_uuid(), 'local', '{}', '[]', '{}', 'idle', now(), 10, 90 FROM generate_series(1, 20);
INSERT INTO holdfast_lanes (digest, tenant, queue, type, requires, prefers, defer_seconds)
SELECT 'digest ' || n, 'default', 'default', 'type ' || n, '[]', '[]', 0 FROM generate_series(1, 50) AS n;
INSERT INTO holdfast_policies (digest, body, moves, waits_for_offline, offline_seconds, cancel_grace_seconds)
VALUES ('d', '{}', 32767, FALSE, 90, 30);
INSERT INTO holdfast_jobs (id, tenant, type, queue, lane, lifecycle, policy, moves, state, due, priority, version,
                  epoch, max_attempts, run_at, created_at, updated_at, finished_at, lease_seconds, late_writes,
                  lease_worker, lease_token, lease_expires_at, payload)
SELECT gen_random_uuid(), 'default', 'type ' || n % 50, 'default', 1 + n % 50, 'default', 1, 32767, state,
       CASE WHEN state = 'queued' THEN n % 10 <> 0 END, n % 7, 1, 1, 5, now() + n % 10 * interval '1 second', now(),
       now(), CASE WHEN state = 'succeeded' THEN now() END, 30, TRUE,
       CASE WHEN state = 'running' THEN (SELECT id FROM holdfast_workers LIMIT 1) END,
       CASE WHEN state = 'running' THEN gen_random_uuid() END, CASE WHEN state = 'running' THEN now() END, '{}'
  FROM (SELECT n, CASE WHEN n % 100 = 1 THEN 'running' WHEN n % 2 = 0 THEN 'queued' ELSE 'succeeded' END AS state
          FROM generate_series(1, 50000) AS n) AS crowd;
SET session_replication_role = DEFAULT;
"""

# The statement, and the indexes of `jobs` by which it may find its rows.
PINNED = {
    "open_lanes": {"holdfast_jobs_claim", "holdfast_jobs_pkey", "holdfast_jobs_running"},
    "claim_jobs": {"holdfast_jobs_claim", "holdfast_jobs_pkey"},
    "renew_leases": {"holdfast_jobs_pkey", "holdfast_jobs_running"},
    "complete_jobs": {"holdfast_jobs_pkey", "holdfast_jobs_running"},
    "retry_jobs": {"holdfast_jobs_pkey", "holdfast_jobs_running"},
    "held_jobs": {"holdfast_jobs_pkey", "holdfast_jobs_running"},
    "hold_job": {"holdfast_jobs_pkey", "holdfast_jobs_running"},
    "lost_jobs": {"holdfast_jobs_running"},
    "overdue": {"holdfast_jobs_waiting", "holdfast_jobs_running"},
    "claimable": {"holdfast_jobs_claim", "holdfast_jobs_waiting", "holdfast_jobs_running"},
    "open_work": {"holdfast_jobs_claim"},
    "next_open_work": {"holdfast_jobs_waiting", "holdfast_jobs_running"},
    "policies_of_jobs": {"holdfast_jobs_pkey"},
    "instances": {"holdfast_jobs_running"},
    "beat_worker": {"holdfast_jobs_running"},
    "due_work": {"holdfast_jobs_waiting", "holdfast_jobs_running", "holdfast_jobs_created"},
    "held_by": {"holdfast_jobs_running"},
    "still_held": {"holdfast_jobs_pkey", "holdfast_jobs_running"},
    "reap_to_retry": {"holdfast_jobs_pkey", "holdfast_jobs_running"},
    "mark_due_jobs": {"holdfast_jobs_waiting", "holdfast_jobs_pkey"},
    "mark_due_parents": {"holdfast_jobs_waiting", "holdfast_jobs_pkey", "holdfast_jobs_of_parent"},
    "children": {"holdfast_jobs_of_parent"},
    "requeue_due": {"holdfast_jobs_retrying", "holdfast_jobs_pkey"},
    "due_retries": {"holdfast_jobs_retrying"},
    "orphans": {"holdfast_jobs_created"},
    "jobs_by_key": {"holdfast_jobs_key_once", "holdfast_jobs_pkey"},
    "job": {"holdfast_jobs_pkey"},
    "summaries": {"holdfast_jobs_pkey"},
    "held_by_worker": {"holdfast_jobs_running"},
    "changed_workers": {"holdfast_jobs_running"},
    "jobs_of_worker": {"holdfast_jobs_running"},
    "successors": {"holdfast_jobs_redriven"},
    "leases_long_over": {"holdfast_jobs_running"},
    "waiting_lanes": {"holdfast_jobs_claim"},
    "top_counts": {"holdfast_jobs_created", "holdfast_jobs_waiting", "holdfast_jobs_retrying", "holdfast_jobs_unhappy"},
    "health": {
        "holdfast_jobs_created",
        "holdfast_jobs_claim",
        "holdfast_jobs_waiting",
        "holdfast_jobs_running",
        "holdfast_jobs_unhappy",
    },
    "queue_stats": {"holdfast_jobs_claim", "holdfast_jobs_waiting", "holdfast_jobs_created", "holdfast_jobs_running"},
    "jobs_that_need": {"holdfast_jobs_needs"},
    "needs_that_name": {"holdfast_jobs_needs"},
    "top_held": {"holdfast_jobs_running"},
    "top_running": {"holdfast_jobs_running"},
    "top_flow": {"holdfast_jobs_pkey"},
    "top_ended": {"holdfast_jobs_pkey"},
}
# Maintenance may read everything until the first ANALYZE, and never after.
PINNED_WITH_STATISTICS = PINNED | {
    "prunable_unhappy": {"holdfast_jobs_unhappy"},
    "overdue_unhappy": {"holdfast_jobs_unhappy"},
    "recent_deaths": {"holdfast_jobs_unhappy"},
    "forget_workers": {"holdfast_jobs_running"},
}
NEEDED = {
    "open_lanes": "holdfast_jobs_claim",
    "claim_jobs": "holdfast_jobs_claim",
    "claimable": "holdfast_jobs_claim",
    "open_work": "holdfast_jobs_claim",
    "mark_due_jobs": "holdfast_jobs_waiting",
    "mark_due_parents": "holdfast_jobs_waiting",
    "requeue_due": "holdfast_jobs_retrying",
    "due_retries": "holdfast_jobs_retrying",
    "jobs_by_key": "holdfast_jobs_key_once",
}


# By their ids, whatever the statistics say: the index of running jobs may be full of those that ran.
BY_ID = ("renew_leases", "complete_jobs", "retry_jobs", "held_jobs", "reap_to_retry")


def unexpected_indexes(ways: dict[str, set[str]]) -> dict[str, set[str]]:
    """The statements that reach `holdfast_jobs` by another way than theirs."""
    apart = {name: found - PINNED_WITH_STATISTICS[name] for name, found in ways.items()}
    return {name: others for name, others in apart.items() if others}


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for inner in plan.get("Plans", ()) for node in nodes(inner))]


async def plan_on_postgres(store: PostgresStore, name: str, filters: tuple[str, ...] = ()) -> dict[str, Any]:
    """The generic plan of the store's own connections."""
    statement = render(getattr(q, name), POSTGRES, 100, filters)
    nothing = f"({', '.join(['NULL'] * len(statement.params))})" if statement.params else ""

    async def explain(tx: Tx) -> Any:
        await tx.all(Query("generic", "SET LOCAL plan_cache_mode = force_generic_plan"))
        await tx.all(Query("prepare", f"PREPARE pinned AS {statement.text}"))
        [[plan]] = await tx.all(Query("explain", f"EXPLAIN (FORMAT JSON) EXECUTE pinned{nothing}"))
        await tx.all(Query("forget", "DEALLOCATE pinned"))
        return json.loads(plan)[0]["Plan"]

    return cast("dict[str, Any]", await store.write(explain))


async def scans_on_postgres(store: PostgresStore, name: str) -> list[dict[str, Any]]:
    """How it reaches `holdfast_jobs`."""
    scans = [node for node in nodes(await plan_on_postgres(store, name)) if "Scan" in node["Node Type"]]
    return [scan for scan in scans if scan.get("Relation Name") == "holdfast_jobs"]


async def ways_on_postgres(store: PostgresStore, name: str) -> set[str]:
    """By which index, or by what kind of scan."""
    return {scan.get("Index Name", scan["Node Type"]) for scan in await scans_on_postgres(store, name)}


@pytest.fixture
async def store(fresh_postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(fresh_postgres_url, Clock(), Ids())
    yield store
    await store.close()


async def test_postgres_uses_only_the_expected_indexes(store: PostgresStore, postgres: Any) -> None:
    """With statistics, and with the generic plan that a long-lived connection ends up with."""
    await postgres.execute(CROWD + "ANALYZE")
    ways = {name: await ways_on_postgres(store, name) for name in PINNED_WITH_STATISTICS}
    assert unexpected_indexes(ways) == {}
    assert {name: ways[name] for name in BY_ID} == {name: {"holdfast_jobs_pkey"} for name in BY_ID}
    assert [name for name, index in NEEDED.items() if index not in ways[name]] == []
    assert all(ways.values())


async def test_postgres_uses_the_expected_indexes_before_the_first_analyze(store: PostgresStore, postgres: Any) -> None:
    """The plans must not depend on statistics that are not there yet."""
    await postgres.execute("ALTER TABLE holdfast_jobs SET (autovacuum_enabled = FALSE)")
    await postgres.execute(CROWD)
    ways = {name: await ways_on_postgres(store, name) for name in PINNED}
    assert unexpected_indexes(ways) == {}


async def test_lane_queries_use_no_disabled_scan(store: PostgresStore, postgres: Any) -> None:
    """A disabled scan costs ten billion: other plans could not be compared, and each claim would be JIT-compiled."""
    for statistics in ("SELECT 1", "ANALYZE"):
        await postgres.execute(statistics)
        for name in ("open_lanes", "claimable", "open_work"):
            assert (await plan_on_postgres(store, name))["Total Cost"] < 1e9, name
    [[jit]] = await store.read(lambda tx: tx.all(Query("jit", "SHOW jit")))
    assert jit == "off"


async def test_postgres_finds_jobs_by_id_although_statistics_show_no_running_job(
    store: PostgresStore, postgres: Any
) -> None:
    """Statistics from an idle moment make reading the whole index of running jobs look free."""
    await postgres.execute("ALTER TABLE holdfast_jobs SET (autovacuum_enabled = FALSE)")
    await postgres.execute(CROWD.replace("WHEN n % 100 = 1 THEN 'running'", "") + "ANALYZE")
    ways = {name: await ways_on_postgres(store, name) for name in BY_ID}
    assert ways == {name: {"holdfast_jobs_pkey"} for name in BY_ID}


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
        assert ways_on_sqlite(sqlite, name, ("tenant", filtered)) == {LISTS[filtered]}


def ways_on_sqlite(connection: sqlite3.Connection, name: str, filters: tuple[str, ...] = ()) -> set[str]:
    statement = render(getattr(q, name), SQLITE, 100, filters)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params)).fetchall()
    found = set()
    for *_, detail in plan:
        if step := re.match(
            r"(SCAN|SEARCH) (holdfast_jobs|head|held|holder|j)\b(?:.*USING (?:COVERING )?INDEX (\S+))?", detail
        ):
            found.add(step[3] or step[0])
    return {"holdfast_jobs_pkey" if name == "sqlite_autoindex_holdfast_jobs_1" else name for name in found}


@pytest.mark.parametrize("analyzed", [False, True])
def test_sqlite_uses_only_the_expected_indexes(sqlite: sqlite3.Connection, analyzed: bool) -> None:
    if analyzed:
        sqlite.execute("ANALYZE")
    ways = {name: ways_on_sqlite(sqlite, name) for name in PINNED_WITH_STATISTICS}
    assert unexpected_indexes(ways) == {}
    assert [name for name, index in NEEDED.items() if index not in ways[name]] == []
    assert all(ways.values())
