"""Limits in the database: constraints and triggers against typed SQL, guards of the statements, and their plans."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.engine.admin import limits as limits_module
from holdfast.ids import Ids
from holdfast.lifecycle import BIT, State
from holdfast.model import NewJob
from holdfast.store import PostgresStore, Row
from holdfast.store.queries import Query, q
from holdfast.store.render import SQLITE, render
from tests.engine.limiting import crawl, crawl_by_domain, declare, held_by_jobs, limit, turns
from tests.engine.steps import ask
from tests.store.by_hand import ByHand, insert, job_id, move
from tests.store.test_plans import CROWD, nodes, plan_on_postgres

ALL_MOVES = sum(BIT.values())
JOB, OTHER = job_id(1), job_id(2)
KEYED = {"key_lane": "-7", "limit_key": "'a'"}
BUCKET = "key:default a"


# -- constraints and triggers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", ["-1, NULL, NULL", "NULL, -1, 1", "NULL, 1, 0.5", "NULL, 1, NULL", "NULL, NULL, 2"])
async def test_a_limit_that_makes_no_sense_is_refused(db: ByHand, values: str) -> None:
    sql = "INSERT INTO holdfast_limits (name, concurrency, rate, burst, updated_at) VALUES ('gpu', {}, {{t}})"
    assert await db.refuses(sql.format(values)) == "constraint"
    await db.run(sql.format("0, 0, 1"))


async def test_a_job_holds_units_of_a_bucket_once(db: ByHand) -> None:
    sql = f"INSERT INTO holdfast_limit_units (bucket, job_id, units) VALUES ('gpu', '{JOB}', 1)"
    await db.run(sql)
    assert await db.refuses(sql) == "constraint"


async def rows_of(db: ByHand) -> list[tuple[Any, ...]]:
    return await db.run("SELECT lane, key_lane, bucket, turn_at IS NULL FROM holdfast_key_lanes ORDER BY key_lane, 4")


async def test_a_job_with_a_key_opens_its_lane_when_it_becomes_claimable(db: ByHand) -> None:
    await db.run(insert(OTHER, moves=ALL_MOVES))
    await db.run(insert(JOB, moves=ALL_MOVES, **KEYED, due="FALSE"))
    assert await rows_of(db) == []
    for _ in range(2):  # to be due already is no change
        await db.run(f"UPDATE holdfast_jobs SET due = TRUE WHERE id = '{JOB}'")
        assert await rows_of(db) == [(1, -7, BUCKET, False)]
    await db.run(insert(job_id(3), moves=ALL_MOVES, key_lane="-8"))
    assert await rows_of(db) == [(1, -8, None, False), (1, -7, BUCKET, False)]


async def running(db: ByHand, limited: str) -> None:
    """A running job with a key, its units and those of another; lanes that wait for its bucket, and for another."""
    await db.run(insert(JOB, moves=ALL_MOVES, **KEYED))
    await db.run(move(JOB, State.RUNNING, limited=limited))
    await db.run("DELETE FROM holdfast_key_lanes")
    for job in (JOB, OTHER):
        await db.run(f"INSERT INTO holdfast_limit_units (bucket, job_id, units) VALUES ('{BUCKET}', '{job}', 1)")
    for lane, bucket in ((-8, BUCKET), (-9, "key:default b")):
        await db.run(
            f"INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at) VALUES (1, {lane}, '{bucket}', NULL)"
        )


ENDS = [state for state in State if (State.RUNNING, state) in BIT]


@pytest.mark.parametrize("target", ENDS)
async def test_a_job_that_no_longer_runs_frees_its_units_and_opens_the_lanes_of_its_bucket(
    db: ByHand, target: State
) -> None:
    await running(db, "TRUE")
    await db.run(move(JOB, target))
    assert await db.run("SELECT CAST(job_id AS text) FROM holdfast_limit_units") == [(OTHER,)]
    opened = {(lane, full) for _, lane, _, full in await rows_of(db)}
    assert opened - {(-7, False)} == {(-9, True), (-8, True), (-8, False)}


async def test_a_job_that_goes_on_keeps_its_units_and_opens_nothing(db: ByHand) -> None:
    await running(db, "TRUE")
    await db.run(f"UPDATE holdfast_jobs SET percent = 50, lease_expires_at = {{t}} WHERE id = '{JOB}'")
    assert len(await db.run("SELECT 1 FROM holdfast_limit_units")) == 2
    assert [full for *_, full in await rows_of(db)] == [True, True]


# -- guards of the statements -----------------------------------------------------------------------------------------


async def run(engine: Engine, query: Query, **params: Any) -> list[Row]:
    return await engine.store.write(lambda tx: tx.all(query, **params))


async def lane_of(engine: Engine, job: str) -> tuple[int, int]:
    [row] = await ask(engine, "SELECT lane, key_lane FROM holdfast_jobs WHERE id = :id", id=job)
    return row["lane"], row["key_lane"]


async def test_end_turns_deletes_only_the_rows_of_the_lanes_it_is_given(engine: Engine) -> None:
    await crawl_by_domain(engine)
    first, *_ = await crawl(engine, "a", "a", "b")
    lane, key_lane = await lane_of(engine, first)
    assert len(await run(engine, q.end_turns, lanes=[key_lane, lane])) == 1
    assert await turns(engine) == [("key:crawl b", False)]


async def test_jobs_of_one_key_share_a_row_until_a_claim_replaces_it(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a", "a", "b")
    await crawl(engine, "a", "b")
    assert await turns(engine) == [("key:crawl a", False), ("key:crawl b", False)]
    [lease] = await engine.claim(worker)
    await crawl(engine, "a")
    await engine.complete(worker, lease.id, lease.token)
    assert sorted({bucket for bucket, _ in await turns(engine)}) == ["key:crawl a", "key:crawl b"]


async def begun(engine: Engine, job: str) -> list[tuple[str | None, bool]]:
    lane, key_lane = await lane_of(engine, job)
    await run(engine, q.end_turns, lanes=[key_lane])
    await run(engine, q.begin_turns, next=[(lane, key_lane, "key:crawl a", None)])
    return await turns(engine)


async def test_begin_turns_inserts_a_row_only_for_a_lane_with_jobs(engine: Engine) -> None:
    await crawl_by_domain(engine)
    [job] = await crawl(engine, "a")
    assert await begun(engine, job) == [("key:crawl a", False)]
    await engine.cancel(job)
    assert await begun(engine, job) == []


async def test_begin_turns_lets_a_lane_wait_for_units_or_until_it_has_a_token(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await crawl_by_domain(engine)
    job, _ = await crawl(engine, "a", "a")
    await engine.claim(worker)
    assert await begun(engine, job) == [("key:crawl a", True)]
    await limit(engine, "key:crawl", rate="1/min", burst=1)
    assert await begun(engine, job) == [("key:crawl a", False)]
    await run(engine, q.spend_tokens, spent=[("key:crawl a", 0.5, clock.now(), 30.0)])
    assert await begun(engine, job) == [("key:crawl a", False)]
    polled = await engine.polls.poll(worker)
    assert (polled.due, polled.next_in) == (False, pytest.approx(30))
    await limit(engine, "key:crawl", rate=0, burst=1)
    assert await begun(engine, job) == [("key:crawl a", True)]
    await limit(engine, "key:crawl a", concurrency=2)
    assert await begun(engine, job) == [("key:crawl a", False)]


async def key_lanes(engine: Engine, worker: str, **asked: Any) -> list[tuple[str | None, str | None]]:
    """Of each row: the type of its lane, if the worker may claim from it, and its bucket."""
    asked = {"after": 0, "named": False, "queues": None, "types": None, "most": 9, "limit": 9, **asked}
    rows = await run(engine, q.open_key_lanes, worker=worker, **asked)
    return [(row["type"], row["bucket"]) for row in rows]


async def test_open_key_lanes_lists_each_lane_once_and_only_lanes_that_have_turns(engine: Engine, worker: str) -> None:
    """If it is asked for the queues and types of the worker, only those."""
    for name in ("crawl", "fetch"):
        await declare(engine, name, limit_key="domain")
        await engine.create(NewJob(type=name, payload={"domain": "a"}))
    await engine.create(NewJob(type="plain"))
    every = [("crawl", "key:crawl a"), ("fetch", "key:fetch a")]
    assert sorted(await key_lanes(engine, worker)) == every
    assert await key_lanes(engine, worker, named=True, types=["crawl", "plain"]) == every[:1]
    assert sorted(await key_lanes(engine, worker, named=True, queues=["default"])) == every
    assert await key_lanes(engine, worker, named=True, queues=["other"]) == []


async def test_open_key_lanes_lists_no_turns_of_lanes_that_are_not_for_the_worker(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a")
    await crawl(engine, "b", requires=["gpu"])
    able = (await engine.workers.register(capabilities={"gpu": True})).id
    assert await key_lanes(engine, worker) == [("crawl", "key:crawl a"), (None, None)]
    assert await key_lanes(engine, able) == [("crawl", "key:crawl a"), ("crawl", "key:crawl b")]
    assert await key_lanes(engine, able, types=["other"]) == [(None, None)] * 2


async def test_keyed_lanes_are_not_open_to_a_disabled_worker(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a")
    other = (await engine.workers.register(name="other")).id
    await engine.workers.disable(worker)
    assert await key_lanes(engine, worker) == [(None, None)]
    assert await key_lanes(engine, other) == [("crawl", "key:crawl a")]


async def test_hold_units_takes_units_only_for_the_given_jobs_of_the_given_lanes(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await limit(engine, "key:crawl", concurrency=5)
    mine, alike, other = await crawl(engine, "a", "a", "b")
    _, lane = await lane_of(engine, mine)
    held = [(lane, "key:crawl a", 1), (lane, "gpu", 3)]
    rows = await run(engine, q.hold_units, held=held, ids=[mine, other])
    assert sorted((row["bucket"], row["units"]) for row in rows) == [("gpu", 3), ("key:crawl a", 1)]
    assert await ask(engine, "SELECT 1 FROM holdfast_limit_units WHERE job_id <> :id", id=mine) == []
    assert alike != mine


async def test_mark_limited_marks_only_running_jobs_that_the_limit_is_about(engine: Engine, worker: str) -> None:
    one, two = [(await engine.create(NewJob(type=name, queue=name))).id for name in ("one", "two")]
    await engine.claim(worker, types=["one"])
    asked = {"kind": "type", "name": "type:one", "about": "one"}
    assert [row["id"] for row in await run(engine, q.mark_limited, **asked)] == [one]
    assert await run(engine, q.mark_limited, kind="type", name="type:two", about="two") == []
    await engine.claim(worker)
    assert [row["id"] for row in await run(engine, q.mark_limited, kind="queue", name="x", about="two")] == [two]
    for _ in range(2):  # the second time they have their units
        await run(engine, q.count_running, kind="type", name="type:one", ids=[one])
    [row] = await ask(engine, "SELECT bucket, job_id, units FROM holdfast_limit_units")
    assert tuple(row) == ("type:one", one, 1)


async def test_mark_limited_marks_only_jobs_that_take_units_of_the_named_limit(engine: Engine, worker: str) -> None:
    """Not those that take none, or units of another."""
    await crawl(engine, "a")
    await crawl(engine, "b", limits={"cpu": 1})
    [mine] = await crawl(engine, "c", limits={"gpu": 1, "cpu": 1})
    assert len(await engine.claim(worker, limit=9)) == 3
    assert [row["id"] for row in await run(engine, q.mark_limited, kind="name", name="gpu", about="")] == [mine]


@pytest.mark.parametrize(("about", "expected"), [("crawl", "ab"), ("crawl a", "a"), ("fetch", "c"), ("other", "")])
async def test_mark_limited_marks_only_jobs_with_keys_of_the_type_or_with_this_key(
    engine: Engine, worker: str, about: str, expected: str
) -> None:
    for name in ("crawl", "fetch"):
        await declare(engine, name, limit_key="domain")
    domain_of = dict(zip(await crawl(engine, *"ab"), "ab", strict=True))
    domain_of[(await engine.create(NewJob(type="fetch", payload={"domain": "c"}))).id] = "c"
    assert len(await engine.claim(worker, limit=9)) == 3
    marked = await run(engine, q.mark_limited, kind="key", name=f"key:{about}", about=about)
    assert sorted(domain_of[row["id"]] for row in marked) == [*expected]


async def test_a_running_job_that_holds_units_of_another_limit_is_counted(engine: Engine, worker: str) -> None:
    await limit(engine, "gpu", concurrency=5)
    [job] = await crawl(engine, "a", limits={"gpu": 2})
    await engine.claim(worker)
    assert await held_by_jobs(engine) == {"gpu": 2}
    asked = {"kind": "type", "name": "type:crawl"}
    assert [row["id"] for row in await run(engine, q.mark_limited, **asked, about="crawl")] == [job]
    assert [row["job_id"] for row in await run(engine, q.count_running, **asked, ids=[job])] == [job]
    rows = await ask(engine, "SELECT bucket, units FROM holdfast_limit_units ORDER BY bucket")
    assert [tuple(row) for row in rows] == [("gpu", 2), ("type:crawl", 1)]


async def test_a_job_that_ends_while_mark_limited_waits_for_it_is_not_marked(
    store: PostgresStore, postgres: Any
) -> None:
    engine = Engine(store)
    worker = (await engine.workers.register(name="tester")).id
    ends, goes_on = await crawl(engine, *"ab")
    assert len(await engine.claim(worker, limit=9)) == 2
    async with postgres.transaction():
        await postgres.execute(move(ends, State.SUCCEEDED).replace("{t}", "now()"))
        marked = asyncio.create_task(run(engine, q.mark_limited, kind="type", name="type:crawl", about="crawl"))
        async with asyncio.timeout(5):
            while not await postgres.fetchval(_IS_WAITED_FOR):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [row["id"] for row in await marked] == [goes_on]


_IS_WAITED_FOR = """
SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))"""


async def test_only_limits_that_were_changed_a_moment_ago_are_recounted(engine: Engine, clock: MovableClock) -> None:
    await limit(engine, "gpu", concurrency=5)
    clock.advance(60)
    await limit(engine, "cpu", concurrency=5)
    clock.advance(60)
    for seconds, names in ((59, []), (119, ["cpu"]), (121, ["cpu", "gpu"])):
        assert [row["name"] for row in await run(engine, q.changed_limits, seconds=seconds)] == names


async def test_only_lanes_of_the_changed_limit_that_wait_are_opened(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, *"aabb")
    await engine.claim(worker, limit=5)
    assert await turns(engine) == [("key:crawl a", True), ("key:crawl b", True)]
    await engine.create(NewJob(type="other"))
    assert len(await run(engine, q.open_changed_lanes, name="key:other")) == 0
    assert len(await run(engine, q.open_changed_lanes, name="key:crawl a")) == 1
    assert await turns(engine) == [("key:crawl a", False), ("key:crawl a", True), ("key:crawl b", True)]
    assert len(await run(engine, q.open_changed_lanes, name="key:crawl")) == 2


async def test_a_lane_whose_turn_it_is_gets_no_other_when_its_limit_changes(engine: Engine) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, *"ab")
    for name in ("key:crawl", "key:crawl a"):
        assert await run(engine, q.open_changed_lanes, name=name) == []
    assert await turns(engine) == [("key:crawl a", False), ("key:crawl b", False)]


async def test_maintenance_opens_only_lanes_whose_bucket_has_room_and_that_have_no_turn(
    engine: Engine, worker: str
) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, *"aabb")
    leases = {lease.payload["domain"]: lease for lease in await engine.claim(worker, limit=5)}
    assert await engine.job_limits.open_full_lanes() == 0
    await ask(engine, "DELETE FROM holdfast_limit_units WHERE bucket = 'key:crawl a' RETURNING job_id")
    assert await engine.job_limits.open_full_lanes() == 1
    assert await engine.job_limits.open_full_lanes() == 0
    await engine.complete(worker, leases["b"].id, leases["b"].token)
    assert [lease.payload["domain"] for lease in await engine.claim(worker, limit=5)] == ["a", "b"]


async def test_a_round_of_maintenance_looks_at_a_part_of_the_keyed_lanes_and_the_next_goes_on(
    engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "LOOKED_AT_MAX", 2)
    await crawl_by_domain(engine)
    assert await engine.job_limits.open_full_lanes() == 0
    await crawl(engine, *"aabbccddee")
    assert len(await engine.claim(worker, limit=9)) == 5
    assert [await engine.job_limits.open_full_lanes() for _ in range(4)] == [0, 0, 0, 0]
    await ask(engine, "DELETE FROM holdfast_limit_units WHERE TRUE RETURNING job_id")
    opened = [await engine.job_limits.open_full_lanes() for _ in range(9)]
    assert max(opened) <= 2
    assert sum(opened) == 5


async def test_maintenance_gives_a_turn_to_a_key_whose_turn_is_far_away_although_it_has_tokens(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """A claim that was open while the rate changed has written the turn of the old one."""
    await declare(engine, limit_key="domain")
    await limit(engine, "key:crawl", rate="1/h", burst=1)
    await crawl(engine, *"aa")
    assert len(await engine.claim(worker, limit=9)) == 1
    await ask(engine, "UPDATE holdfast_limits SET rate = 1 RETURNING name")
    clock.advance(2)
    assert await engine.claim(worker, limit=9) == []
    assert (await engine.polls.due_work(workers_kept=1, claims_kept=1)).full_keys
    assert await engine.job_limits.open_full_lanes() == 1
    assert len(await engine.claim(worker, limit=9)) == 1


@pytest.mark.parametrize(
    ("kind", "name", "about"),
    [
        ("type", "type:crawl", "crawl"),
        ("queue", "queue:default", "default"),
        ("tenant", "tenant:default", "default"),
        ("key", "key:crawl", "crawl"),
        ("key", "key:crawl a", "crawl a"),
        ("name", "gpu", ""),
    ],
)
async def test_running_jobs_that_hold_units_of_a_limit_are_not_written_again(
    engine: Engine, worker: str, kind: str, name: str, about: str
) -> None:
    """A write would lock them against their heartbeats."""
    await declare(engine, limit_key="domain")
    await crawl(engine, *"aa", limits={"gpu": 1})
    await engine.claim(worker, limit=9)
    await limit(engine, name, concurrency=5)
    assert await run(engine, q.mark_limited, kind=kind, name=name, about=about) == []
    await ask(engine, "DELETE FROM holdfast_limit_units WHERE TRUE RETURNING job_id")
    assert len(await run(engine, q.mark_limited, kind=kind, name=name, about=about)) == 2
    await engine.job_limits.recount()
    assert len(await ask(engine, "SELECT job_id FROM holdfast_limit_units")) == 2


async def test_only_tokens_of_buckets_that_are_full_again_are_pruned(engine: Engine, clock: MovableClock) -> None:
    spent = [("soon", 0.0, clock.now(), 30.0), ("later", 0.0, clock.now(), 90.0)]
    await run(engine, q.spend_tokens, spent=spent)
    for pruned in ([], ["soon"], ["later"]):
        assert [row["bucket"] for row in await run(engine, q.prune_tokens, limit=9)] == pruned
        clock.advance(60)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("key:crawl", ["key:crawl a", "key:crawl b c"]),
        ("key:crawl b", ["key:crawl b"]),
        ("type:crawl", ["type:crawl"]),
    ],
)
async def test_a_changed_rate_changes_when_its_own_buckets_are_full(
    engine: Engine, clock: MovableClock, name: str, changed: list[str]
) -> None:
    """A key with a limit of its own is not about the limit of each key, nor another type or key with a longer name."""
    buckets = ["key:crawl a", "key:crawl b", "key:crawl b c", "key:crawler c", "type:crawl"]
    await limit(engine, "key:crawl b", rate=1, burst=2)
    await run(engine, q.spend_tokens, spent=[(bucket, 0.0, clock.now(), 30.0) for bucket in buckets])
    await limit(engine, name, rate=0.01, burst=2)
    assert await run(engine, q.prune_tokens, limit=9) == []
    clock.advance(60)
    pruned = {row["bucket"] for row in await run(engine, q.prune_tokens, limit=9)}
    assert sorted({*buckets} - pruned) == changed
    clock.advance(200)
    assert sorted(row["bucket"] for row in await run(engine, q.prune_tokens, limit=9)) == changed


async def test_tokens_that_a_claim_spends_now_are_pruned_later(store: PostgresStore, postgres: Any) -> None:
    """Neither waits for the other: two that lock buckets in another order would deadlock."""
    for name in "ab":
        await postgres.execute(_FULL_AGAIN, name)
    async with postgres.transaction():
        await postgres.execute("UPDATE holdfast_limit_tokens SET tokens = 0 WHERE bucket = 'a'")
        pruned = await asyncio.wait_for(store.write(lambda tx: tx.all(q.prune_tokens, limit=9)), timeout=5)
        assert [row["bucket"] for row in pruned] == ["b"]
    assert [row["bucket"] for row in await store.write(lambda tx: tx.all(q.prune_tokens, limit=9))] == ["a"]


_FULL_AGAIN = "INSERT INTO holdfast_limit_tokens (bucket, tokens, filled_at, full_at) VALUES ($1, 1, now(), now())"


async def test_the_units_of_a_repeated_row_are_counted_once(engine: Engine, worker: str) -> None:
    """Rows of a lane repeat where jobs become claimable; a claim counts its jobs, not the rows."""
    await crawl_by_domain(engine, 2)
    await crawl(engine, *"aaaa")
    assert len(await engine.claim(worker, limit=9)) == 2
    assert await held_by_jobs(engine) == {"key:crawl a": 2}


# -- plans ------------------------------------------------------------------------------------------------------------

KEYED_CROWD = """
SET session_replication_role = replica;
INSERT INTO holdfast_limits (name, concurrency, updated_at)
SELECT 'key:type ' || n || ' k', 1, now() FROM generate_series(0, 999) AS n;
INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at)
SELECT (1 + n % 2) * 4294967296 + n % 50, -n, 'key:type ' || n % 50 || ' ' || n, CASE WHEN n % 3 = 0 THEN now() END
  FROM generate_series(1, 20000) AS n;
INSERT INTO holdfast_limit_units (bucket, job_id, units)
SELECT 'key:type ' || n % 50 || ' ' || n % 7000, gen_random_uuid(), 1 FROM generate_series(1, 20000) AS n;
INSERT INTO holdfast_limit_tokens (bucket, tokens, filled_at, full_at)
SELECT 'key:type ' || n % 50 || ' ' || n, 1, now(), now() FROM generate_series(1, 20000) AS n;
SET session_replication_role = DEFAULT;
"""
HOT = (
    "open_key_lanes",
    "lock_limits",
    "limit_usage",
    "hold_units",
    "spend_tokens",
    "end_turns",
    "begin_turns",
    "last_key_lane",
    "open_full_lanes",
)
LARGE = {
    f"holdfast_{name}" for name in ("key_lanes", "limit_units", "limit_tokens", "limits", "ready", "jobs", "lanes")
}
# They stop at the first row, or there are few: whether there is a limit, or a worker that holds a job.
IS_THERE_ANY = {
    "open_key_lanes: Index Only Scan of holdfast_limits holdfast_limits_pkey",
    "SCAN holdfast_limits USING COVERING INDEX sqlite_autoindex_holdfast_limits_1",
    "SCAN holdfast_jobs USING INDEX holdfast_jobs_running",
}


@pytest.fixture
async def store(fresh_postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(fresh_postgres_url, Clock(), Ids())
    yield store
    await store.close()


async def whole_scans(store: PostgresStore, name: str) -> list[str]:
    """Tables of which the statement reads everything. By their places, rows are read that it has found before."""
    scans = [node for node in nodes(await plan_on_postgres(store, name)) if node.get("Relation Name") in LARGE]
    reads = [scan for scan in scans if "Scan" in scan["Node Type"]]
    return [
        f"{name}: {scan['Node Type']} of {scan['Relation Name']} {scan.get('Index Name', '')}".strip()
        for scan in reads
        if scan["Node Type"] != "Tid Scan" and "Index Cond" not in scan
    ]


async def test_postgres_reads_keyed_lanes_units_and_limits_by_their_indexes(
    store: PostgresStore, postgres: Any
) -> None:
    """Without statistics, and with them."""
    for rows in ("SELECT 1", CROWD + KEYED_CROWD, "ANALYZE"):
        await postgres.execute(rows)
        found = [scan for name in HOT for scan in await whole_scans(store, name)]
        assert {*found} <= IS_THERE_ANY


@pytest.mark.parametrize("name", HOT)
def test_sqlite_reads_keyed_lanes_units_and_limits_by_their_indexes(sqlite: sqlite3.Connection, name: str) -> None:
    statement = render(getattr(q, name), SQLITE, 100)
    plan = sqlite.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params)).fetchall()
    scans = [detail for *_, detail in plan if re.match(r"SCAN (holdfast_\w+|[a-z]{1,2}|one|head)\b", detail)]
    assert {scan for scan in scans if "VIRTUAL TABLE" not in scan} <= IS_THERE_ANY


COUNTS = ("limits_in_force", "units_in_use")


async def test_postgres_looks_up_the_limit_of_each_bucket_that_it_counts(store: PostgresStore, postgres: Any) -> None:
    """They read all units or limits once, and never all of one for each of the other."""
    for rows in ("SELECT 1", CROWD + KEYED_CROWD, "ANALYZE"):
        await postgres.execute(rows)
        scans = [node for name in COUNTS for node in nodes(await plan_on_postgres(store, name)) if "Alias" in node]
        looked_up = [scan for scan in scans if scan["Alias"] in ("m", "k", "one")]
        assert [scan["Alias"] for scan in looked_up if "Index Cond" not in scan] == []
        assert len(looked_up) == 4


@pytest.mark.parametrize("name", COUNTS)
def test_sqlite_looks_up_the_limit_of_each_bucket_that_it_counts(sqlite: sqlite3.Connection, name: str) -> None:
    statement = render(getattr(q, name), SQLITE, 100)
    plan = sqlite.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params)).fetchall()
    assert [detail for *_, detail in plan if re.match(r"SCAN (m|k|one)\b", detail)] == []


async def test_turns_set_back_moves_only_turns_in_the_future(engine: Engine, clock: MovableClock) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a", "b")
    insert = "INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at) SELECT lane, key_lane, bucket, {now+60}"
    await engine.store.write(lambda tx: tx.all(Query("later", f"{insert} FROM holdfast_key_lanes RETURNING key_lane")))
    clock.advance(10)
    before = await ask(engine, "SELECT turn_at FROM holdfast_key_lanes ORDER BY turn_at")
    await run(engine, q.turns_set_back, limit=100)
    after = await ask(engine, "SELECT turn_at FROM holdfast_key_lanes ORDER BY turn_at")
    assert [row["turn_at"] for row in after[:2]] == [row["turn_at"] for row in before[:2]]
    assert [row["turn_at"] for row in after[2:]] < [row["turn_at"] for row in before[2:]]
