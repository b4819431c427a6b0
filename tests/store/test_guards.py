"""Each guarded statement on its own: with one wrong condition, no row moves."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.lifecycle import FINAL, State
from holdfast.lifecycle.default import DEFAULT
from holdfast.lifecycle.machine import read_moves
from holdfast.lifecycle.states import CANON
from holdfast.model import Lease, NewJob
from holdfast.store import q
from holdfast.store.queries import Query
from holdfast.store.render import SQLITE, render
from tests.engine.steps import bring, stored

ERROR = '{"code":"boom","message":""}'
OTHER = "00000000-0000-4000-8000-000000000000"

# For each statement that a lease guards: its rows, given the job and the token.
BY_LEASE: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "complete_jobs": lambda job, token: {"done": [(job, token, None)]},
    "retry_jobs": lambda job, token: {"failed": [(job, token, "boom", ERROR, 5.0)]},
    "dead_letter_jobs": lambda job, token: {"failed": [(job, token, "boom", ERROR)]},
    "release_jobs": lambda job, token: {"freed": [(job, token, "released", 0.0)]},
    "reject_running": lambda job, token: {"verdict": [(job, token, "SAFE_BLOCK", ERROR)]},
    "cancel_running": lambda job, token: {"stopped": [(job, token, None)]},
    "advance_jobs": lambda job, token: {"told": [(job, token, "step", 5.0, None, None, None)]},
    "renew_leases": lambda job, token: {"held": [(job, token)]},
    "held_jobs": lambda job, token: {"held": [(job, token)]},
    "held_counters": lambda job, token: {"held": [(job, token)]},
}
BY_TOKEN_ALONE: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "reap_to_retry": lambda job, token: {"gone": [(job, token, 1, "lease_expired", ERROR, 0.0)]},
    "reap_to_dead": lambda job, token: {"gone": [(job, token, 1, "poison", ERROR)]},
    "reap_to_canceled": lambda job, token: {"gone": [(job, token, 1, "cancel")]},
    "hold_job": lambda job, token: {"id": job, "token": token},
}
# Statements that only a state guards: one that they leave, one that they do not.
BY_STATE: dict[str, tuple[State, State, Callable[[str], dict[str, Any]]]] = {
    "accept_jobs": (State.CREATED, State.QUEUED, lambda job: {"ids": [job]}),
    "cancel_waiting": (State.QUEUED, State.RUNNING, lambda job: {"ids": [job], "reason": "canceled"}),
    "ask_to_cancel": (State.RUNNING, State.QUEUED, lambda job: {"ids": [job], "reason": "canceled"}),
    "requeue_jobs": (State.RETRYING, State.QUEUED, lambda job: {"ids": [job], "reason": "requeued"}),
    "requeue_ripe": (State.RETRYING, State.QUEUED, lambda job: {"ids": [job]}),
    "dead_letter_waiting": (State.RETRYING, State.QUEUED, lambda job: {"buried": [(job, "discarded", None)]}),
    "reap_waiting": (State.RETRYING, State.QUEUED, lambda job: {"ids": [job]}),
    "reject_queued": (State.QUEUED, State.RETRYING, lambda job: {"verdict": [(job, "SAFE_BLOCK", ERROR)]}),
}
LATE = ("complete_jobs", "retry_jobs", "dead_letter_jobs", "reject_running", "advance_jobs")


async def run(engine: Engine, query: Query, **params: Any) -> list[Any]:
    if query.recorded:
        params["actor"] = "worker" if query.name in BY_LEASE else "system"
    return await engine.store.write(lambda tx: tx.all(query, **params))


async def running_job(engine: Engine, worker: str, *, canceling: bool = False, **policy: Any) -> Lease:
    await engine.create(NewJob(type="echo", policy=policy or None))
    [lease] = await engine.claim(worker)
    if canceling:
        await engine.cancel(lease.id)
    return lease


@pytest.mark.parametrize("name", [*BY_LEASE, *BY_TOKEN_ALONE])
async def test_only_the_current_token_moves_a_job(engine: Engine, worker: str, name: str) -> None:
    """K27: a state alone would match the next owner's run."""
    rows = (BY_LEASE | BY_TOKEN_ALONE)[name]
    who = {"worker": worker} if name in BY_LEASE else {}
    query: Query = getattr(q, name)
    lease = await running_job(engine, worker, canceling="cancel" in name)
    neighbour = await running_job(engine, worker)
    before = [await engine.reads.get(lease.id), await engine.reads.get(neighbour.id)]

    assert await run(engine, query, **rows(lease.id, OTHER), **who) == []
    assert await run(engine, query, **rows(lease.id, neighbour.token), **who) == []
    assert await run(engine, query, **rows(OTHER, lease.token), **who) == []
    assert [await engine.reads.get(lease.id), await engine.reads.get(neighbour.id)] == before

    [moved] = await run(engine, query, **rows(lease.id, lease.token), **who)
    assert moved["id"] == lease.id
    assert await engine.reads.get(neighbour.id) == before[1]


@pytest.mark.parametrize("name", BY_LEASE)
async def test_only_the_worker_that_holds_the_lease_may_use_its_token(engine: Engine, worker: str, name: str) -> None:
    lease = await running_job(engine, worker, canceling="cancel" in name)
    before = await engine.reads.get(lease.id)
    assert await run(engine, getattr(q, name), **BY_LEASE[name](lease.id, lease.token), worker=OTHER) == []
    assert await engine.reads.get(lease.id) == before


@pytest.mark.parametrize("name", LATE)
async def test_a_lifecycle_without_late_writes_refuses_writes_after_the_lease_expired(
    engine: Engine, worker: str, clock: MovableClock, name: str
) -> None:
    """R003-59, R003-109, C-29."""
    timely, strict = [await running_job(engine, worker, late_writes=False) for _ in range(2)]
    lenient = await running_job(engine, worker)
    query: Query = getattr(q, name)
    assert len(await run(engine, query, **BY_LEASE[name](timely.id, timely.token), worker=worker)) == 1
    clock.advance(31)
    assert await run(engine, query, **BY_LEASE[name](strict.id, strict.token), worker=worker) == []
    assert len(await run(engine, query, **BY_LEASE[name](lenient.id, lenient.token), worker=worker)) == 1


async def test_hold_job_without_late_writes_refuses_after_the_lease_expired(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    strict, lenient = [await running_job(engine, worker, late_writes=late) for late in (False, True)]
    assert len(await run(engine, q.hold_job, id=strict.id, token=strict.token)) == 1
    clock.advance(31)
    assert await run(engine, q.hold_job, id=strict.id, token=strict.token) == []
    assert len(await run(engine, q.hold_job, id=lenient.id, token=lenient.token)) == 1
    await engine.complete(worker, lenient.id, lenient.token)
    assert await run(engine, q.hold_job, id=lenient.id, token=lenient.token) == []


@pytest.mark.parametrize("name", ["cancel_running", "reap_to_canceled"])
async def test_a_running_job_is_canceled_only_after_a_cancel_request(engine: Engine, worker: str, name: str) -> None:
    lease = await running_job(engine, worker)
    rows = (BY_LEASE | BY_TOKEN_ALONE)[name](lease.id, lease.token)
    assert await run(engine, getattr(q, name), **rows, **({"worker": worker} if name in BY_LEASE else {})) == []
    assert (await engine.reads.get(lease.id)).state is State.RUNNING


@pytest.mark.parametrize("name", BY_STATE)
async def test_a_statement_moves_jobs_only_from_the_states_it_names(engine: Engine, worker: str, name: str) -> None:
    """It matches no row; the trigger behind it is not needed."""
    _, state, rows = BY_STATE[name]
    job = await bring(engine, worker, DEFAULT, state)
    before = await stored(engine, job.id)
    assert await run(engine, getattr(q, name), **rows(job.id)) == []
    assert await stored(engine, job.id) == before


@pytest.mark.parametrize("name", BY_STATE)
async def test_a_statement_moves_only_the_jobs_it_is_given(engine: Engine, worker: str, name: str) -> None:
    state, _, rows = BY_STATE[name]
    job, neighbour = [await bring(engine, worker, DEFAULT, state) for _ in range(2)]
    before = await stored(engine, neighbour.id)
    [moved] = await run(engine, getattr(q, name), **rows(job.id))
    assert moved["id"] == job.id
    assert await stored(engine, neighbour.id) == before


async def test_ask_to_cancel_records_a_request_once(engine: Engine, worker: str) -> None:
    lease = await running_job(engine, worker)
    wish = {"ids": [lease.id], "reason": "canceled"}
    assert len(await run(engine, q.ask_to_cancel, **wish)) == 1
    assert await run(engine, q.ask_to_cancel, **wish) == []


async def test_free_key_frees_one_key_once(engine: Engine) -> None:
    job, neighbour = [await engine.create(NewJob(type="echo", idempotency_key=key)) for key in "ab"]

    async def free(job_id: str) -> Any:
        return await engine.store.write(lambda tx: tx.one(q.free_key, id=job_id))

    assert await free(job.id) is not None
    assert await free(job.id) is None
    assert await free(neighbour.id) is not None


async def test_only_the_finished_jobs_that_are_named_are_deleted(engine: Engine, worker: str) -> None:
    waiting, *ended = [await bring(engine, worker, DEFAULT, state) for state in (State.QUEUED, *sorted(FINAL))]
    ids = [waiting.id, ended[0].id]
    [deleted] = await engine.store.write(lambda tx: tx.all(q.prune_jobs, ids=ids))
    assert deleted["id"] == ended[0].id
    assert {job.id for job in (await engine.reads.page()).jobs} == {waiting.id, *(job.id for job in ended[1:])}


async def test_a_heartbeat_updates_only_its_own_worker(engine: Engine, worker: str) -> None:
    """R003-25: other workers stay without a heartbeat."""
    other = await engine.workers.register()
    await engine.heartbeat(worker, [])
    heard = {known.id: known.last_heartbeat_at is not None for known in await engine.workers.all()}
    assert heard == {worker: True, other.id: False}


async def test_a_worker_goes_offline_once(engine: Engine, worker: str, clock: MovableClock) -> None:
    """R003-85, R003-86: by its own silence, and told once."""
    clock.advance(90)
    await engine.workers.register()
    gone = [[row["id"] for row in await run(engine, q.silent_workers)] for _ in range(2)]
    assert gone == [[worker], []]


MOVES = [query for query in q.all() if query.move]


@pytest.mark.parametrize("query", MOVES, ids=lambda query: query.name)
def test_a_move_names_the_states_it_leaves(query: Query) -> None:
    """Rule 3: exactly those the lifecycles know for this verb and target, as literals, in the statement itself."""
    text = render(query, SQLITE, 1).text
    target = re.search(r"\bstate\s+= '(\w+)',", text)
    assert target is not None
    known = {move.source for move in read_moves(CANON) if (move.verb, move.target) == (query.move, target[1])}
    guard = text[text.rindex("WHERE") :]
    named = re.search(r"\bstate (?:= '(\w+)'|IN \(([^)]*)\))", guard)
    assert named is not None, guard
    left = {State(word.strip(" '")) for word in (named[1] or named[2]).split(",")}
    assert left <= known


@pytest.mark.parametrize("query", [query for query in q.all() if query.name in BY_LEASE], ids=lambda query: query.name)
def test_every_worker_statement_checks_running_token_and_worker(query: Query) -> None:
    """Rule 2: tokens decide who may write, in the same statement."""
    guard = render(query, SQLITE, 1).text.partition("WHERE")[2]
    for predicate in ("state = 'running'", "lease_token = ", "lease_worker = :worker"):
        assert predicate in guard


def test_hold_job_checks_id_running_and_token() -> None:
    guard = render(q.hold_job, SQLITE).text.partition("WHERE")[2]
    for predicate in ("holdfast_jobs.id = :id", "state = 'running'", "lease_token = :token"):
        assert predicate in guard


def test_every_statement_that_ends_an_execution_is_in_these_tables() -> None:
    ending = {query.name for query in q.all() if query.ends}
    assert ending <= BY_LEASE.keys() | BY_TOKEN_ALONE.keys()
    assert {query.name for query in MOVES} - ending - BY_STATE.keys() == {"claim_jobs", "claim_found", "requeue_due"}
