"""Each predicate of the triggers on jobs: which rows they refuse, and which lists, units and parents they change."""

import json
import sqlite3
from typing import Any

import pytest

from holdfast.lifecycle import BIT, State
from tests.store.by_hand import TOKEN, ByHand, by_hand, insert, insert_anyhow, job_id, move

ALL_MOVES = sum(BIT.values())
JOB, OTHER, THIRD = job_id(1), job_id(2), job_id(3)
KEYED = {"key_lane": "-7", "limit_key": "'a'"}
BUCKET = "key:default a"
LATER = {"timestamptz": "{t} + interval '1 hour'", "integer": "{t} + 3600000000"}


def later(db: ByHand) -> str:
    return LATER["timestamptz" if db.time.startswith("timestamptz") else "integer"]


# -- rows that are refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        *("attempt = 1", "attempt = -1", "priority = 101", "priority = -101", "finished_at = {t}", "due = NULL"),
        *(f"lease_token = '{TOKEN}'", "lease_expires_at = {t}", "key_live = TRUE", "max_attempts = 0"),
    ],
)
async def test_a_job_is_not_inserted_with_columns_of_another_state(fresh_postgres_url: str, wrong: str) -> None:
    name, _, value = wrong.partition(" = ")
    async with by_hand(fresh_postgres_url) as db:
        assert await db.refuses(insert(JOB, **{name: value})) == "constraint"
        await db.run(insert(JOB))


async def test_a_created_job_is_not_inserted_as_claimable(db: ByHand) -> None:
    assert await db.refuses(insert(JOB, State.CREATED, moves=ALL_MOVES, due="TRUE")) == "constraint"
    await db.run(insert(JOB, State.CREATED, moves=ALL_MOVES))
    for wrong in ("due = FALSE", "finished_at = {t}"):
        assert await db.refuses(f"UPDATE holdfast_jobs SET {wrong}") == "constraint"


async def test_a_claim_does_not_exceed_the_attempts_of_a_job_that_was_released_before(db: ByHand) -> None:
    await db.run(insert(JOB, moves=ALL_MOVES, max_attempts="1"))
    await db.run(move(JOB, State.RUNNING))
    await db.run(move(JOB, State.QUEUED))
    assert await db.refuses(move(JOB, State.RUNNING, attempt="2")) == "constraint"
    await db.run(move(JOB, State.RUNNING, attempt="1"))


@pytest.mark.parametrize("target", [State.SUCCEEDED, State.DEAD, State.CANCELED, State.REJECTED])
async def test_a_job_does_not_end_without_a_time(db: ByHand, target: State) -> None:
    await db.run(insert(JOB, moves=ALL_MOVES))
    await db.run(move(JOB, State.RUNNING))
    assert await db.refuses(move(JOB, target, finished_at="NULL")) == "constraint"
    assert await db.refuses(move(JOB, target, due="FALSE")) == "constraint"


@pytest.mark.parametrize("target", [State.QUEUED, State.RETRYING])
async def test_a_job_does_not_become_claimable_without_an_attempt_left(db: ByHand, target: State) -> None:
    await db.run(insert(JOB, moves=ALL_MOVES, max_attempts="1"))
    await db.run(move(JOB, State.RUNNING, attempt="1"))
    assert await db.refuses(move(JOB, target)) == "constraint"
    assert await db.refuses(move(JOB, target, attempt="0", finished_at="{t}")) == "constraint"
    await db.run(move(JOB, target, attempt="0"))


async def test_a_retrying_job_without_an_attempt_left_may_wait_for_the_sweep_that_ends_it(db: ByHand) -> None:
    await db.run(insert(JOB, moves=ALL_MOVES, max_attempts="1"))
    await db.run(move(JOB, State.RUNNING, attempt="1"))
    await db.run(move(JOB, State.RETRYING, due="FALSE"))


async def test_a_key_that_was_freed_can_be_made_live_again(db: ByHand) -> None:
    await db.run(insert(JOB, idempotency_key="'k'", key_live="FALSE"))
    await db.run("UPDATE holdfast_jobs SET key_live = TRUE")
    assert await db.refuses(insert(OTHER, idempotency_key="'k'", key_live="TRUE")) == "constraint"


FULL = {"percent": "100"}  # as the engine completes a job: PostgreSQL checks that in a way of its own


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ("moved_by = 'system'", "HF003"),
        ("epoch = epoch + 1", "HF001"),
        *((f"percent = {value}", "constraint") for value in (-1, 101)),
        *((f"due = {value}", "constraint") for value in ("TRUE", "FALSE")),
        *(
            ("attempt = 6", "constraint"),
            ("finished_at = NULL", "constraint"),
            ("lease_expires_at = {t}", "constraint"),
        ),
    ],
)
async def test_a_complete_with_a_wrong_column_is_refused(db: ByHand, wrong: str, refusal: str) -> None:
    await db.run(insert(JOB, moves=ALL_MOVES))
    await db.run(move(JOB, State.RUNNING, attempt="1"))
    name, _, value = wrong.partition(" = ")
    assert await db.refuses(move(JOB, State.SUCCEEDED, **{**FULL, name: value})) == refusal
    await db.run(move(JOB, State.SUCCEEDED, **FULL))


async def test_a_job_is_completed_only_if_its_lifecycle_and_state_allow_it(db: ByHand) -> None:
    succeeding = BIT[State.RUNNING, State.SUCCEEDED]
    rows = [insert(JOB, State.RUNNING, moves=ALL_MOVES - succeeding), insert(OTHER, State.QUEUED, moves=ALL_MOVES)]
    rows.append(insert(THIRD, State.RUNNING, moves=succeeding))
    await insert_anyhow(db, rows)
    for job in (JOB, OTHER):
        assert await db.refuses(move(job, State.SUCCEEDED, **FULL)) == "HF001"
    await db.run(move(THIRD, State.SUCCEEDED, **FULL))


async def test_a_complete_frees_the_units_of_a_job_that_holds_some(db: ByHand) -> None:
    await running(db)
    await keyed(db, -7, BUCKET, turn=False)
    await db.run(move(JOB, State.SUCCEEDED, **FULL))
    assert await db.run("SELECT 1 FROM holdfast_limit_units") == []
    assert await turns(db) == [(-7, False), (-7, True)]


async def test_a_complete_makes_the_parent_of_the_job_due(db: ByHand) -> None:
    await family(db)
    assert await moved(db, move(JOB, State.SUCCEEDED, **FULL)) == [OTHER]


# -- the list of claimable jobs ---------------------------------------------------------------------------------------

READY = "SELECT CAST(id AS text), lane, priority, hooked, run_at FROM holdfast_ready ORDER BY id, lane"
DUE = """
SELECT CAST(id AS text), coalesce(key_lane, lane), priority, needs IS NOT NULL, run_at
  FROM holdfast_jobs
 WHERE due
 ORDER BY id"""
LIST = """
INSERT INTO holdfast_ready (id, lane, priority, hooked, run_at)
SELECT id, coalesce(key_lane, lane), priority, needs IS NOT NULL, run_at FROM holdfast_jobs WHERE due"""


@pytest.mark.parametrize(
    "change",
    [
        *("lane = 2", "key_lane = -8", "key_lane = NULL", "priority = 5", "run_at = {later}", "needs = '[\"notes\"]'"),
        *("due = FALSE", "lane = 2, due = FALSE", "tags = '[]'"),
    ],
)
async def test_the_row_of_a_claimable_job_follows_each_change_of_its_place(db: ByHand, change: str) -> None:
    """And the rows beside it, of the same lane and priority, stay."""
    columns = {} if change.startswith("lane") else KEYED
    for job in (JOB, OTHER, THIRD):
        await db.run(insert(job, moves=ALL_MOVES, **columns))
    await ready_rows(db)
    await db.run(f"UPDATE holdfast_jobs SET {change.format(later=later(db), t='{t}')} WHERE id = '{OTHER}'")
    rows = await db.run(READY)
    assert rows == await db.run(DUE)
    assert len(rows) == (2 if "FALSE" in change else 3)


async def ready_rows(db: ByHand) -> None:
    """PostgreSQL: what the statement that creates jobs does besides."""
    if db.time.startswith("timestamptz"):
        await db.run(LIST)


async def test_a_job_that_becomes_claimable_without_hooks_is_listed_as_such(db: ByHand) -> None:
    await db.run(insert(JOB, moves=ALL_MOVES, needs="'[\"notes\"]'", due="FALSE"))
    for change in ("due = TRUE", "needs = NULL"):
        await db.run(f"UPDATE holdfast_jobs SET {change}")
        assert await db.run(READY) == await db.run(DUE)


async def test_a_change_of_other_columns_does_not_write_the_list_of_claimable_jobs(postgres: Any) -> None:
    """It is written for each job that is created and claimed; each dead row in it is one that claims step over."""
    await postgres.execute(insert(JOB, moves=ALL_MOVES).replace("{t}", "now()"))
    await postgres.execute(LIST)
    place = await postgres.fetchval("SELECT ctid FROM holdfast_ready")
    await postgres.execute("UPDATE holdfast_jobs SET tags = '[]'")
    assert await postgres.fetchval("SELECT ctid FROM holdfast_ready") == place


async def test_the_claim_itself_deletes_the_row_of_a_job_that_it_claims(postgres: Any) -> None:
    """The trigger does not look for it again."""
    await postgres.execute(insert(JOB, moves=ALL_MOVES).replace("{t}", "now()"))
    for state in (State.RUNNING, State.RETRYING, State.RUNNING):
        await postgres.execute(move(JOB, state).replace("{t}", "now()"))
    assert await postgres.fetchval("SELECT count(*) FROM holdfast_ready") == 1


CROWD = f"""
INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at)
SELECT CASE WHEN n % 2 = 0 THEN -7 ELSE n END, CASE WHEN n % 2 = 0 THEN n % 50 + 1 ELSE 0 END, FALSE,
       gen_random_uuid(), now()
  FROM generate_series(1, 20000) AS n;
INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at)
SELECT 1, -100 - n, 'key:default ' || n, CASE WHEN n % 2 = 0 THEN now() END
  FROM generate_series(1, 20000) AS n;
INSERT INTO holdfast_limit_units (bucket, job_id, units)
SELECT '{BUCKET}', gen_random_uuid(), 1 FROM generate_series(1, 20000) AS n;
ANALYZE;
"""


@pytest.mark.parametrize("change", ["due = FALSE", "end"])
async def test_a_move_reads_only_its_own_rows_of_long_lists(postgres: Any, change: str) -> None:
    """20,000 other jobs are claimable, hold units and wait for keys. The first job fills the caches of the session."""
    await postgres.execute(CROWD)
    for job in (JOB, OTHER):
        await postgres.execute(insert(job, moves=ALL_MOVES, limit_key="'a'", key_lane="-7").replace("{t}", "now()"))
    await postgres.execute(LIST)
    if change == "end":
        for job in (JOB, OTHER):
            await postgres.execute(move(job, State.RUNNING, limited="TRUE").replace("{t}", "now()"))
    for job in (JOB, OTHER):
        moved = (
            move(job, State.RETRYING) if change == "end" else f"UPDATE holdfast_jobs SET {change} WHERE id = '{job}'"
        )
        plan = await postgres.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {moved.replace('{t}', 'now()')}")
        pages = _pages(plan)
    assert pages < 60


async def test_the_end_of_a_job_reads_only_the_lanes_of_its_key(fresh_sqlite_url: str) -> None:
    """SQLite counts the steps of its programs, those of the triggers among them."""
    async with by_hand(fresh_sqlite_url) as db:
        await running(db)
        numbers = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 5000)"
        row = "1, -100 - n, 'key:default ' || n, CASE WHEN n % 2 = 0 THEN {t} END"
        columns = "lane, key_lane, bucket, turn_at"
        await db.run(f"INSERT INTO holdfast_key_lanes ({columns}) {numbers} SELECT {row} FROM n")
        steps: list[int] = []
        connection: sqlite3.Connection = db.connection  # type: ignore[attr-defined]
        connection.set_progress_handler(lambda: steps.append(100), 100)
        await db.run(move(JOB, State.SUCCEEDED))
        assert sum(steps) < 2000


def _pages(plan: str) -> int:
    [top] = json.loads(plan)
    return int(top["Plan"]["Shared Hit Blocks"]) + int(top["Plan"]["Shared Read Blocks"])


# -- keyed lanes and units --------------------------------------------------------------------------------------------


async def keyed(db: ByHand, key_lane: int, bucket: str, *, turn: bool, since: str = "NULL") -> None:
    await db.run(
        "INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)"
        f" VALUES (1, {key_lane}, '{bucket}', {'{t}' if turn else 'NULL'}, {since})"
    )


async def turns(db: ByHand) -> list[tuple[Any, ...]]:
    return sorted(await db.run("SELECT key_lane, turn_at IS NOT NULL FROM holdfast_key_lanes"))


async def running(db: ByHand, **columns: str) -> None:
    """A running job with a key and a unit; no lane has a turn."""
    await db.run(insert(JOB, moves=ALL_MOVES, **KEYED))
    await db.run(move(JOB, State.RUNNING, limited="TRUE", **columns))
    await db.run("DELETE FROM holdfast_key_lanes")
    await db.run(f"INSERT INTO holdfast_limit_units (bucket, job_id, units) VALUES ('{BUCKET}', '{JOB}', 1)")


async def test_a_new_job_gives_no_turn_to_a_lane_that_waits_for_units(db: ByHand) -> None:
    await keyed(db, -7, BUCKET, turn=False)
    await db.run(insert(JOB, moves=ALL_MOVES, **KEYED))
    await db.run(insert(OTHER, moves=ALL_MOVES, **KEYED, due="FALSE"))
    await db.run(f"UPDATE holdfast_jobs SET due = TRUE WHERE id = '{OTHER}'")
    assert await turns(db) == [(-7, False)]


async def test_a_lane_keeps_its_own_place_when_units_are_freed_not_that_of_another(db: ByHand) -> None:
    await running(db)
    await keyed(db, -8, "key:default b", turn=True, since="{t}")
    await keyed(db, -7, BUCKET, turn=False, since=later(db))
    await db.run(move(JOB, State.SUCCEEDED))
    rows = await db.run("SELECT count(DISTINCT since), count(*) FROM holdfast_key_lanes WHERE key_lane = -7")
    assert rows == [(1, 2)]


async def test_a_lane_without_jobs_before_has_no_place_of_another(db: ByHand) -> None:
    await keyed(db, -8, "key:default b", turn=True, since="{t}")
    await db.run(insert(JOB, moves=ALL_MOVES, **KEYED))
    assert await db.run("SELECT since FROM holdfast_key_lanes WHERE key_lane = -7") == [(None,)]


async def test_only_a_job_that_was_not_claimable_before_opens_its_lane(db: ByHand) -> None:
    """Whether other lanes are open or not."""
    await keyed(db, -8, "key:default b", turn=True)
    await db.run(insert(JOB, moves=ALL_MOVES, **KEYED, due="FALSE"))
    assert await turns(db) == [(-8, True)]
    await db.run("UPDATE holdfast_jobs SET due = TRUE")
    assert await turns(db) == [(-8, True), (-7, True)]
    await db.run("DELETE FROM holdfast_key_lanes")
    await db.run("UPDATE holdfast_jobs SET due = TRUE")
    assert await turns(db) == []


async def test_a_running_job_whose_state_is_written_again_keeps_its_units(db: ByHand) -> None:
    await running(db)
    await keyed(db, -7, BUCKET, turn=False)
    await db.run("UPDATE holdfast_jobs SET state = state, percent = 50")
    assert len(await db.run("SELECT 1 FROM holdfast_limit_units")) == 1
    assert await turns(db) == [(-7, False)]


async def test_freed_units_give_a_turn_to_each_lane_that_waits_and_no_second_to_one_that_has_it(db: ByHand) -> None:
    await running(db)
    for key_lane in (-7, -8):
        await keyed(db, key_lane, BUCKET, turn=True)
        await keyed(db, key_lane, BUCKET, turn=False)
    await keyed(db, -9, BUCKET, turn=False)
    await db.run(move(JOB, State.SUCCEEDED))
    assert await turns(db) == [(lane, turn) for lane in (-9, -8, -7) for turn in (False, True)]


async def test_a_lane_gets_another_turn_while_a_claim_ends_the_one_it_has(
    fresh_postgres_url: str, postgres: Any
) -> None:
    """The claim has counted the units before they were freed: without the new row, the lane would wait for nothing."""
    async with by_hand(fresh_postgres_url) as db:
        await running(db)
        await keyed(db, -7, BUCKET, turn=True)
        await keyed(db, -7, BUCKET, turn=False)
        async with postgres.transaction():
            await postgres.execute("DELETE FROM holdfast_key_lanes WHERE turn_at IS NOT NULL")
            await db.run(move(JOB, State.SUCCEEDED))
        assert await turns(db) == [(-7, False), (-7, True)]


async def test_units_are_freed_once_when_a_job_stops_running_and_not_when_it_moves_on(db: ByHand) -> None:
    """It may hold units again by then: of its next run."""
    await running(db)
    await db.run(move(JOB, State.RETRYING, due="FALSE", limited="TRUE"))
    assert await db.run("SELECT 1 FROM holdfast_limit_units") == []
    await db.run("DELETE FROM holdfast_key_lanes")
    await db.run(f"INSERT INTO holdfast_limit_units (bucket, job_id, units) VALUES ('{BUCKET}', '{JOB}', 1)")
    await keyed(db, -8, BUCKET, turn=False)
    await db.run("UPDATE holdfast_jobs SET tags = '[]'")
    await db.run(move(JOB, State.DEAD))
    assert len(await db.run("SELECT 1 FROM holdfast_limit_units")) == 1
    assert await turns(db) == [(-8, False)]


# -- parents ----------------------------------------------------------------------------------------------------------

WAITS = {"due": "FALSE", "reason": "'waiting_for_children'"}


async def family(db: ByHand, state: State = State.QUEUED, **parent: str) -> None:
    """A running child; a parent, as described, and another job that waits for its own children."""
    rows = [
        insert(OTHER, state, moves=ALL_MOVES, **{"run_at": later(db), **WAITS, **parent}),
        insert(THIRD, moves=ALL_MOVES, run_at=later(db), **WAITS),
        insert(JOB, moves=ALL_MOVES, parent_id=f"'{OTHER}'"),
    ]
    await insert_anyhow(db, rows)
    await db.run(unfinished(move(JOB, State.RUNNING)))


def unfinished(change: str) -> str:
    """As the engine writes it: only a move that ends a job names this column."""
    return change.replace("finished_at = NULL, ", "")


async def moved(db: ByHand, by: str) -> list[str]:
    """The jobs whose time has changed."""
    read = "SELECT CAST(id AS text), run_at FROM holdfast_jobs"
    before = dict(await db.run(read))
    await db.run(by)
    return [job for job, run_at in await db.run(read) if before[job] != run_at]


@pytest.mark.parametrize("end", [State.SUCCEEDED, State.DEAD, State.CANCELED, State.REJECTED])
async def test_the_end_of_a_child_makes_the_parent_that_waits_for_it_due(db: ByHand, end: State) -> None:
    await family(db)
    assert await moved(db, move(JOB, end)) == [OTHER]


async def test_a_child_that_has_not_ended_does_not_wake_its_parent(db: ByHand) -> None:
    await family(db)
    assert await moved(db, unfinished(move(JOB, State.RETRYING))) == []


@pytest.mark.parametrize(
    ("state", "parent"),
    [
        (State.RETRYING, {}),
        (State.QUEUED, {"reason": "'deferred'"}),
        (State.QUEUED, {"reason": "NULL"}),
        (State.QUEUED, {"run_at": "{t}", "ended": "later"}),
    ],
    ids=["retrying", "another reason", "no reason", "due already"],
)
async def test_the_end_of_a_child_changes_no_parent_that_does_not_wait_for_it(
    db: ByHand, state: State, parent: dict[str, str]
) -> None:
    ended = {"updated_at": later(db)} if parent.pop("ended", None) else {}
    await family(db, state, **parent)
    assert await moved(db, move(JOB, State.DEAD, **ended)) == []
