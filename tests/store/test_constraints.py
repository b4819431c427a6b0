"""Triggers and constraints refuse what a lifecycle does not allow, also from typed SQL. R001-22, R001-27, S5, S6."""

from itertools import product

import pytest

from holdfast.lifecycle import BIT, FINAL, PAIRS, Lifecycles, Machine, State
from holdfast.lifecycle.machine import read_moves
from holdfast.lifecycle.states import CANON
from tests.pure.declared import declare
from tests.store.by_hand import OTHER, ByHand, by_hand, insert, insert_anyhow, job_id, move

DECLARED_BY_A_USER = declare(
    "approval",
    words={"created": "drafted", "rejected": "declined"},
    moves=["accept: created -> queued by api", "reject: queued -> rejected by system"],
)
MACHINES = (*Lifecycles(), DECLARED_BY_A_USER)
SQUARE = list(product(State, repeat=2))
ALL_MOVES = sum(BIT.values())
JOB = job_id(1)


async def walk(db: ByHand, *states: State, moves: int = ALL_MOVES, **columns: str) -> None:
    """A job that came here by legal moves only."""
    await db.run(insert(JOB, states[0], moves=moves, **columns))
    for state in states[1:]:
        await db.run(move(JOB, state))


async def pairs_allowed(db: ByHand, masks: dict[str, int]) -> dict[str, set[tuple[State, State]]]:
    """For each mask, a row of its own in each state is asked to go to each state; which were let through?"""
    plan = {
        job_id(number): (name, source, target)
        for number, (name, (source, target)) in enumerate(product(masks, SQUARE), start=1)
    }
    await insert_anyhow(db, [insert(job, source, moves=masks[name]) for job, (name, source, _) in plan.items()])
    allowed: dict[str, set[tuple[State, State]]] = {name: set() for name in masks}
    for job, (name, source, target) in plan.items():
        if await db.accepts(move(job, target)):
            allowed[name].add((source, target))
    return allowed


# To stay where it is is no move: a waiting row may be touched. A running one may not be claimed again (C-26).
STAYING = {(state, state) for state in (State.CREATED, State.QUEUED, State.RETRYING)}


async def test_every_pair_of_states_is_allowed_exactly_if_the_lifecycle_has_it(db: ByHand) -> None:
    """R000-17..21, R001-9, R001-22, R002-9, R003-3, R004-2..7: 64 pairs for each lifecycle, a user's own included."""
    allowed = await pairs_allowed(db, {machine.name: machine.mask for machine in MACHINES})
    for machine in MACHINES:
        legal = {(source, target) for source, target in SQUARE if machine.has(source, target)}
        assert allowed[machine.name] == legal | STAYING, machine.name


async def test_each_bit_of_the_mask_opens_its_own_pair_and_no_other(db: ByHand) -> None:
    """The triggers of both dialects spell out the same bits as the lifecycle package."""
    allowed = await pairs_allowed(db, {f"{source}>{target}": BIT[source, target] for source, target in PAIRS})
    assert allowed == {f"{source}>{target}": {(source, target)} | STAYING for source, target in PAIRS}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
async def test_a_job_is_inserted_only_as_queued_or_created(db: ByHand, machine: Machine) -> None:
    """R000-22, R001-10, C-9."""
    births = {state for n, state in enumerate(State) if await db.accepts(insert(job_id(n), state, moves=machine.mask))}
    assert births == ({State.QUEUED, State.CREATED} if State.CREATED in machine.words else {State.QUEUED})


async def test_a_job_is_inserted_only_with_epoch_zero(db: ByHand) -> None:
    """S3: epochs are 1, 2, 3 without a gap."""
    assert await db.refuses(insert(JOB, epoch="1")) == "HF001"


@pytest.mark.parametrize(("first", "second"), list(product(sorted(FINAL), repeat=2)))
async def test_a_job_has_only_one_final_state(db: ByHand, first: State, second: State) -> None:
    """R000-17, R000-18, R001-13, S6: a second terminal state, the same one included, is refused."""
    await walk(db, State.QUEUED, State.RUNNING, first)
    assert await db.refuses(move(JOB, second)) == "HF001"
    assert await db.run("SELECT state FROM holdfast_jobs") == [(first.value,)]


async def columns_of_jobs(db: ByHand) -> dict[str, str]:
    """Each column with a value that differs from the stored one."""
    if db.time.startswith("timestamptz"):
        rows = await db.run(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'holdfast_jobs'"
        )
        other = {"uuid": f"'{OTHER}'", "timestamp with time zone": "now()", "boolean": "NULL", "text": "'other'"}
    else:
        rows = await db.run("SELECT name, lower(type) FROM pragma_table_info('holdfast_jobs')")
        other = {"text": "'other'"}
    return {name: other.get(kind, "77") for name, kind in rows}


@pytest.mark.parametrize("final", sorted(FINAL))
async def test_no_column_of_a_finished_job_can_change(db: ByHand, final: State) -> None:
    """S6: every column is tried, with a new value and with its own."""
    await walk(db, State.QUEUED, State.RUNNING, final, idempotency_key="'k'", key_live="TRUE")
    before = await db.run("SELECT * FROM holdfast_jobs")
    columns = await columns_of_jobs(db)
    assert len(columns) > 50
    for name, value in columns.items():
        assert await db.refuses(f"UPDATE holdfast_jobs SET {name} = {value}") == "HF001", name
        assert await db.refuses(f"UPDATE holdfast_jobs SET {name} = {name}") == "HF001", name
    assert await db.run("SELECT * FROM holdfast_jobs") == before


async def test_a_finished_job_can_only_free_its_key(db: ByHand) -> None:
    """C-18: key_live true -> false is the only change allowed on a final row."""
    await walk(db, State.QUEUED, State.RUNNING, State.DEAD, idempotency_key="'k'", key_live="TRUE")
    assert await db.refuses("UPDATE holdfast_jobs SET key_live = FALSE, result = '1'") == "HF001"
    assert await db.refuses("UPDATE holdfast_jobs SET key_live = NULL") == "HF001"
    assert await db.refuses("UPDATE holdfast_jobs SET key_live = TRUE") == "HF001"
    await db.run("UPDATE holdfast_jobs SET key_live = FALSE")
    for value in ("TRUE", "FALSE", "NULL"):
        assert await db.refuses(f"UPDATE holdfast_jobs SET key_live = {value}") == "HF001"
    await db.run(insert(job_id(2), idempotency_key="'k'", key_live="TRUE"))


async def test_a_finished_job_without_a_live_key_gains_none(db: ByHand) -> None:
    await walk(db, State.QUEUED, State.RUNNING, State.DEAD, idempotency_key="'k'")
    for value in ("TRUE", "FALSE", "NULL"):
        assert await db.refuses(f"UPDATE holdfast_jobs SET key_live = {value}") == "HF001"


async def test_a_live_key_is_unique_per_tenant(db: ByHand) -> None:
    """R001-44, R001-58, C-18, S2."""
    await db.run(insert(job_id(1), idempotency_key="'k'", key_live="TRUE"))
    assert await db.refuses(insert(job_id(2), idempotency_key="'k'", key_live="TRUE")) == "constraint"
    await db.run(insert(job_id(3), idempotency_key="'k'", key_live="TRUE", tenant="'other'"))
    await db.run(insert(job_id(4), idempotency_key="'k'", key_live="FALSE"))
    assert await db.refuses(f"UPDATE holdfast_jobs SET key_live = TRUE WHERE id = '{job_id(4)}'") == "constraint"


async def test_only_finished_jobs_may_be_deleted(db: ByHand) -> None:
    """R001-71, C-23."""
    states = dict(enumerate(State, start=1))
    await insert_anyhow(db, [insert(job_id(number), state) for number, state in states.items()])
    deleted = {
        state for n, state in states.items() if await db.accepts(f"DELETE FROM holdfast_jobs WHERE id = '{job_id(n)}'")
    }
    assert deleted == FINAL


@pytest.mark.parametrize("state", [State.RUNNING, State.SUCCEEDED])
async def test_no_job_is_replaced_by_another_of_its_id(fresh_sqlite_url: str, state: State) -> None:
    """S6: SQLite's REPLACE deletes the old row without calling the delete trigger."""
    async with by_hand(fresh_sqlite_url) as db:
        await insert_anyhow(db, [insert(JOB, state)])
        assert await db.refuses(insert(JOB).replace("INSERT", "INSERT OR REPLACE", 1)) == "HF001"
        assert await db.run("SELECT state FROM holdfast_jobs") == [(state.value,)]


async def test_a_claimable_job_that_changes_keeps_its_one_place_among_those_to_claim(db: ByHand) -> None:
    await db.run(insert(job_id(1)))
    for change in ("priority = 5", "payload = '[]'", "tags = '[]'"):
        await db.run(f"UPDATE holdfast_jobs SET {change} WHERE id = '{job_id(1)}'")
        assert await db.run("SELECT count(*) FROM holdfast_ready") == [(1,)]


async def test_a_lease_token_changes_only_with_a_move(db: ByHand) -> None:
    """C-26, S3, S4."""
    await walk(db, State.QUEUED, State.RUNNING)
    assert await db.refuses(f"UPDATE holdfast_jobs SET lease_token = '{OTHER}'") == "HF001"
    assert await db.refuses("UPDATE holdfast_jobs SET epoch = epoch + 1") == "HF001"
    assert await db.refuses(f"UPDATE holdfast_jobs SET lease_token = '{OTHER}', epoch = epoch + 1") == "HF001"
    await db.run("UPDATE holdfast_jobs SET lease_expires_at = {t}, percent = 50")


@pytest.mark.parametrize("epoch", ["epoch", "epoch + 2", "epoch - 1", "7"])
async def test_a_claim_raises_the_epoch_by_one_and_nothing_else_does(db: ByHand, epoch: str) -> None:
    """S3."""
    await walk(db, State.QUEUED)
    assert await db.refuses(move(JOB, State.RUNNING, epoch=epoch)) == "HF001"
    await db.run(move(JOB, State.RUNNING))
    for target in (State.SUCCEEDED, State.RETRYING, State.QUEUED):
        assert await db.refuses(move(JOB, target, epoch="epoch + 1")) == "HF001"
        assert await db.refuses(move(JOB, target, epoch="epoch - 1")) == "HF001"
    assert await db.run("SELECT epoch FROM holdfast_jobs") == [(1,)]


@pytest.mark.parametrize("change", [f"id = '{OTHER}'", "tenant = 'other'", f"moves = {ALL_MOVES - 1}", "moves = 0"])
async def test_id_tenant_and_moves_cannot_change(db: ByHand, change: str) -> None:
    await walk(db, State.QUEUED)
    assert await db.refuses(f"UPDATE holdfast_jobs SET {change}") == "HF001"
    assert await db.refuses(f"{move(JOB, State.RUNNING).replace('SET', f'SET {change},')}") == "HF001"


@pytest.mark.parametrize(
    "change",
    [
        "state = 'sleeping', due = NULL",
        "due = NULL",
        f"lease_token = '{OTHER}'",
        "finished_at = {t}",
        "attempt = 1",
        "attempt = -1",
        "priority = 101",
        "percent = 101",
        "payload = NULL",
        "key_live = TRUE",
    ],
)
async def test_an_inconsistent_job_row_is_refused(db: ByHand, change: str) -> None:
    """C-31: explicit states with constraints, nothing derived."""
    await walk(db, State.QUEUED)
    assert await db.refuses(f"UPDATE holdfast_jobs SET {change}") in ("constraint", "HF001")


@pytest.mark.parametrize("lost", ["lease_token", "lease_worker", "lease_expires_at"])
async def test_a_running_job_has_a_complete_lease(db: ByHand, lost: str) -> None:
    """R001-12, R001-29, R001-31."""
    await walk(db, State.QUEUED)
    assert await db.refuses(move(JOB, State.RUNNING, **{lost: "NULL"})) == "constraint"


@pytest.mark.parametrize(
    "wrong", ["percent = 101", "percent = -1", "attempt = 6", "due = TRUE", "lease_expires_at = {t}"]
)
async def test_a_job_does_not_succeed_with_columns_of_another_state(db: ByHand, wrong: str) -> None:
    await walk(db, State.QUEUED, State.RUNNING)
    name, _, value = wrong.partition(" = ")
    assert await db.refuses(move(JOB, State.SUCCEEDED, **{name: value})) == "constraint"


@pytest.mark.parametrize("wrong", ["attempt = 6", "attempt = 2", "due = TRUE", "finished_at = {t}"])
async def test_a_job_does_not_start_with_columns_of_another_state(db: ByHand, wrong: str) -> None:
    await walk(db, State.QUEUED)
    name, _, value = wrong.partition(" = ")
    assert await db.refuses(move(JOB, State.RUNNING, **{name: value})) == "constraint"


EVENT = (
    "INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, to_state, attempt, epoch, actor)"
    f" VALUES ('{JOB}', 1, 'default', {{t}}, 'create', 'queued', 0, 0, 'client')"
)
ATTEMPT = (
    "INSERT INTO holdfast_kept_attempts"
    " (job_id, epoch, tenant, attempt, worker_id, token, started_at, ended_at, outcome, to_state)"
    f" VALUES ('{JOB}', 1, 'default', 1, '{OTHER}', '{OTHER}', {{t}}, {{t}}, 'lost', 'retrying')"
)


async def test_history_is_append_only(db: ByHand) -> None:
    """R002-46, S12."""
    await db.run(EVENT)
    await db.run(ATTEMPT)
    assert await db.refuses("UPDATE holdfast_events SET reason = 'rewritten'") == "HF002"
    assert await db.refuses("UPDATE holdfast_events SET seq = seq") == "HF002"
    assert await db.refuses("UPDATE holdfast_kept_attempts SET outcome = 'succeeded'") == "HF002"
    assert await db.refuses(EVENT) == "constraint"
    assert await db.refuses(ATTEMPT) == "constraint"


async def test_the_audit_log_is_append_only(db: ByHand) -> None:
    line = "(seq, at, actor, action, detail, previous, digest) VALUES (1, {t}, 'ops', 'key.revoke', '{}', '', 'd')"
    await db.run(f"INSERT INTO holdfast_audit {line}")
    assert await db.refuses("UPDATE holdfast_audit SET actor = 'mallory'") == "HF002"
    assert await db.refuses("DELETE FROM holdfast_audit") == "HF002"


async def test_only_a_worker_key_names_a_worker(db: ByHand) -> None:
    columns = "(id, kind, tenant, digest, scopes, worker_id, created_at)"
    key = f"INSERT INTO holdfast_keys {columns} VALUES ('k', 'KIND', 'default', 'd', '[]', WORKER, {{t}})"
    assert await db.refuses(key.replace("KIND", "worker").replace("WORKER", "NULL")) == "constraint"
    assert await db.refuses(key.replace("KIND", "client").replace("WORKER", f"'{OTHER}'")) == "constraint"
    assert await db.accepts(key.replace("KIND", "worker").replace("WORKER", f"'{OTHER}'"))


ACTORS = ("client", "api", "worker", "system", "stranger", "")


async def test_a_move_is_refused_if_its_actor_may_not_make_it(db: ByHand) -> None:
    """R000-25..27, C-8: each move only by the actors that the lifecycles name."""
    plan = {job_id(n): (*pair, actor) for n, (pair, actor) in enumerate(product(PAIRS, ACTORS[:4]), start=1)}
    await insert_anyhow(db, [insert(job, source, moves=ALL_MOVES) for job, (source, _, _) in plan.items()])
    let_through = set()
    for job, (source, target, actor) in plan.items():
        if await db.accepts(move(job, target, moved_by=f"'{actor}'"), or_refuses_with="HF003"):
            let_through.add((source, target, actor))
    assert let_through == {(m.source, m.target, actor) for m in read_moves(CANON) for actor in m.actors}


async def test_a_change_that_is_no_move_needs_a_known_actor(db: ByHand) -> None:
    accepted = []
    for number, actor in enumerate(ACTORS, start=1):
        if await db.accepts(insert(job_id(number), moved_by=f"'{actor}'"), or_refuses_with="constraint"):
            accepted.append(actor)
    assert accepted == ["client", "api", "worker", "system"]
    for actor in ACTORS:
        change = f"UPDATE holdfast_jobs SET version = version + 1, moved_by = '{actor}' WHERE id = '{job_id(1)}'"
        assert await db.accepts(change, or_refuses_with="constraint") == (actor in accepted)


async def test_workers_and_parts_accept_only_known_states_and_valid_numbers(db: ByHand) -> None:
    """R003-24, R003-31: also from hand-typed SQL."""
    worker = (
        "INSERT INTO holdfast_workers (id, kind, capabilities, offers, metadata, liveness, registered_at,"
        f" heartbeat_seconds, offline_seconds) VALUES ('{OTHER}', 'local', 'x', 'x', 'x', 'LIVENESS', {{t}}, 10, 90)"
    )
    assert await db.refuses(worker.replace("LIVENESS", "asleep")) == "constraint"
    assert await db.accepts(worker.replace("LIVENESS", "idle"))
    columns = "(job_id, name, tenant, epoch, place, status, percent)"
    part = f"INSERT INTO holdfast_parts {columns} VALUES ('{JOB}', 'p', 'd', 1, 0, "
    assert await db.refuses(part + "'baked', 5)") == "constraint"
    assert await db.refuses(part + "'pending', 101)") == "constraint"
    assert await db.accepts(part + "'pending', 100)")


# -- a job that waits for an attempt has one left --------------------------------------------------------------------


async def test_a_waiting_job_must_have_an_attempt_left(db: ByHand) -> None:
    """A claim takes many jobs at once, and this one would fail it for all of them."""
    assert await db.refuses(insert(JOB, max_attempts="0")) == "constraint"
    await walk(db, State.QUEUED, max_attempts="2")
    assert await db.refuses("UPDATE holdfast_jobs SET max_attempts = attempt") == "HF001"
    await db.run("UPDATE holdfast_jobs SET max_attempts = 1")


async def test_a_retrying_job_that_is_not_due_must_keep_an_attempt(db: ByHand) -> None:
    await walk(db, State.QUEUED, State.RUNNING, max_attempts="2")
    await db.run(move(JOB, State.RETRYING, due="FALSE", attempt="1"))
    for change in ("max_attempts = attempt", "attempt = max_attempts, epoch = epoch"):
        assert await db.refuses(f"UPDATE holdfast_jobs SET {change}") == "HF001"
    await db.run("UPDATE holdfast_jobs SET max_attempts = 3")


async def test_a_running_job_may_be_at_its_last_attempt(db: ByHand) -> None:
    await walk(db, State.QUEUED)
    await db.run(move(JOB, State.RUNNING, attempt="1"))
    await db.run("UPDATE holdfast_jobs SET max_attempts = attempt")
