"""Statements that move or find jobs with hooks: a process without these hooks gets none of them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.hooks.hooks import Hooks
from holdfast.errors import ExtensionMissing
from holdfast.lifecycle import State
from holdfast.lifecycle.default import DEFAULT
from holdfast.model import Job, NewJob
from holdfast.store import Row, Tx, open_store, q
from holdfast.store.queries import Query
from tests.engine.steps import UNKNOWN_ID, ask, bring, stored
from tests.engine.steps import run as claimed
from tests.known.test_corrupt_rows import spoil
from tests.store.test_guards import BY_LEASE, BY_STATE, BY_TOKEN_ALONE, running_job

WITHOUT = ((), ("billing",))  # the extensions of processes that cannot move the job
FREE = ("advance_jobs", "renew_leases", "hold_job", "held_counters")  # they move nothing
GUARDED = [name for name in (*BY_LEASE, *BY_TOKEN_ALONE) if name not in FREE]
LONG = 10_000  # seconds


async def need_hooks(engine: Engine, job_id: str) -> None:
    await ask(engine, """UPDATE holdfast_jobs SET needs = '["notes"]' WHERE id = :id RETURNING id""", id=job_id)


async def run(engine: Engine, query: Query, **params: Any) -> list[Row]:
    if query.recorded:
        params["actor"] = "worker" if "worker" in params else "system"
    return await engine.store.write(lambda tx: tx.all(query, **params))


def with_hooks(query: Query, extensions: tuple[str, ...]) -> Query:
    return query.with_hooks(extensions) if extensions else query


async def check(engine: Engine, query: Query, job_id: str, params: dict[str, Any]) -> None:
    """Only a process that has the hooks moves or finds this job; others, with or without hooks, move nothing."""
    before = await stored(engine, job_id)
    for extensions in WITHOUT:
        assert await run(engine, with_hooks(query, extensions), **params) == [], extensions
    assert await stored(engine, job_id) == before
    assert [row["id"] for row in await run(engine, query.with_hooks(("billing", "notes")), **params)] == [job_id]


@pytest.mark.parametrize("name", GUARDED)
async def test_a_running_job_with_hooks_is_moved_only_by_a_process_that_has_them(
    engine: Engine, worker: str, name: str
) -> None:
    lease = await running_job(engine, worker, canceling="cancel" in name)
    await need_hooks(engine, lease.id)
    who = {"worker": worker} if name in BY_LEASE else {}
    await check(engine, getattr(q, name), lease.id, {**(BY_LEASE | BY_TOKEN_ALONE)[name](lease.id, lease.token), **who})


@pytest.mark.parametrize("name", BY_STATE)
async def test_a_waiting_job_with_hooks_is_moved_only_by_a_process_that_has_them(
    engine: Engine, worker: str, name: str
) -> None:
    source, _, params = BY_STATE[name]
    job = await bring(engine, worker, DEFAULT, source)
    await need_hooks(engine, job.id)
    await check(engine, getattr(q, name), job.id, params(job.id))


# -- jobs found by sweeps and claims ----------------------------------------------------------------------------------

Brings = Callable[[Engine, str, MovableClock], Awaitable[tuple[str, dict[str, Any]]]]


async def orphan(engine: Engine, _: str, clock: MovableClock) -> tuple[str, dict[str, Any]]:
    made = await engine.create(NewJob(type="n", lifecycle="orchestration"), accept=False)
    clock.advance(LONG)
    return made.id, {"seconds": 60.0, "not_ours": [], "limit": 9}


async def lost(engine: Engine, worker: str, clock: MovableClock) -> tuple[str, dict[str, Any]]:
    lease = await running_job(engine, worker)
    clock.advance(LONG)
    return lease.id, {"queues": None, "gone": [], "unheard": 0.0, "in_grace": False, "limit": 9}


async def ripe(engine: Engine, worker: str, clock: MovableClock) -> tuple[str, dict[str, Any]]:
    lease = await claimed(engine, worker, lifecycle="orchestration")
    await engine.fail(worker, lease.id, lease.token, "E_HICCUP", retry_after_seconds=5)
    clock.advance(5)
    return lease.id, {"limit": 9}


async def due(engine: Engine, worker: str, _: MovableClock) -> tuple[str, dict[str, Any]]:
    made = await engine.create(NewJob(type="n"))
    lane = (await ask(engine, "SELECT lane FROM holdfast_jobs WHERE id = :id", id=made.id))[0]["lane"]
    return made.id, {"lane": lane, "floor": -100, "ceiling": 100, "waits": 0.0, "most": 9}


async def claimable(engine: Engine, worker: str, clock: MovableClock) -> tuple[str, dict[str, Any]]:
    job_id, params = await due(engine, worker, clock)
    wanted = [(params["lane"], params["floor"], params["ceiling"], params["waits"], params["most"])]
    holder = {"worker": worker, "instance": "one", "limited": None, "token_prefix": UNKNOWN_ID[:-12]}
    return job_id, {"wanted": wanted, "most": params["most"], "unread": False, "only": None, "limit": 9, **holder}


FOUND_BY: dict[str, tuple[Brings, str | None]] = {  # how one comes to be, and the verb that a hook may have failed
    "orphans": (orphan, "accept"),
    "lost_jobs": (lost, "reap"),
    "due_retries": (ripe, None),
    "requeue_due": (ripe, None),
    "claimable_jobs": (due, None),
    "claim_jobs": (claimable, None),
}


@pytest.mark.parametrize("name", FOUND_BY)
async def test_a_job_with_hooks_is_found_only_by_a_process_that_has_them(
    engine: Engine, worker: str, clock: MovableClock, name: str
) -> None:
    brings, verb = FOUND_BY[name]
    job_id, params = await brings(engine, worker, clock)
    await need_hooks(engine, job_id)
    if verb is not None:
        await check_failed(engine, getattr(q, name), job_id, verb, params)
    await check(engine, getattr(q, name), job_id, params)


async def check_failed(engine: Engine, query: Query, job_id: str, verb: str, params: dict[str, Any]) -> None:
    """A job whose hook failed on this verb is skipped until its next try; another verb does not count."""
    ours = query.with_hooks(("notes",))
    for failed, found in ((verb, []), ("claim", [job_id])):
        await ask(
            engine,
            "INSERT INTO holdfast_hook_failures (job_id, verb, extension, failures, error, next_at)"
            " VALUES (:id, :verb, 'notes', 1, 'boom', {now+60}) RETURNING job_id",
            id=job_id,
            verb=failed,
        )
        assert [row["id"] for row in await run(engine, ours, **params)] == found
        await ask(engine, "DELETE FROM holdfast_hook_failures WHERE job_id = :id RETURNING job_id", id=job_id)


async def test_polls_do_not_report_jobs_whose_hooks_the_process_lacks(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    delayed = await engine.create(NewJob(type="delayed", delay_seconds=5))
    lease = await running_job(engine, worker)
    clock.advance(LONG)
    waiting = await engine.create(NewJob(type="waiting"))
    for job_id in (delayed.id, lease.id, waiting.id):
        await need_hooks(engine, job_id)
    for extensions in WITHOUT:
        seen = await seen_by(engine, worker, extensions)
        assert not any(seen.values()), (extensions, seen)
    seen = await seen_by(engine, worker, ("billing", "notes"))
    assert all(seen.values()), seen


async def seen_by(engine: Engine, worker: str, extensions: tuple[str, ...]) -> dict[str, bool]:
    async def rows(query: Query, **params: Any) -> list[Row]:
        return await run(engine, with_hooks(query, extensions), **params)

    async def lanes(way: str) -> list[str]:
        """The types of the lanes that a claim may take from."""
        which = {"after": 0, "by_tenant": way == "by_tenant", "named": way == "named"}
        read = await rows(q.open_lanes, worker=worker, limit=9, **which, **scope)
        return [row["type"] for row in read if row["type"] is not None and row["head"] is not None]

    scope: dict[str, Any] = {"queues": None, "types": None}
    [look] = await rows(q.claimable, worker=worker, limit=9, **scope)
    [overdue] = await rows(q.overdue, worker=worker, queues=None)
    [later] = await rows(q.next_open_work, limit=9, **scope)
    return {
        **{f"open_lanes.{way}": bool(await lanes(way)) for way in ("next", "by_tenant", "named")},
        "open_work": bool(await rows(q.open_work, limit=9, **scope)),
        **{f"look.{column}": bool(look[column]) for column in ("due", "next_at", "lost")},
        **{f"overdue.{column}": bool(overdue[column]) for column in ("ripe", "lost")},
        **{f"not_yet_open.{column}": bool(later[column]) for column in ("next_at", "lost")},
    }


PRUNED: dict[str, tuple[State, dict[str, Any]]] = {
    "prunable_succeeded": (State.SUCCEEDED, {"bound": "f" * 8 + "-ffff-7fff-bfff-" + "f" * 12}),
    "prunable_unhappy": (State.DEAD, {"state": "dead"}),
}


@pytest.mark.parametrize("name", PRUNED)
async def test_a_finished_job_with_hooks_is_prunable_only_by_a_process_that_has_them(
    engine: Engine, worker: str, clock: MovableClock, name: str
) -> None:
    state, besides = PRUNED[name]
    job_id = await finished(engine, worker, state)
    clock.advance(1)
    params = {"keep_seconds": 0.0, "besides": [], "seen_seconds": 60.0, "limit": 9, **besides}
    await check_failed(engine, getattr(q, name), job_id, "prune", params)
    await check(engine, getattr(q, name), job_id, params)


async def test_prune_jobs_deletes_a_job_with_hooks_only_in_a_process_that_has_them(engine: Engine, worker: str) -> None:
    job_id = await finished(engine, worker, State.SUCCEEDED)
    await check(engine, q.prune_jobs, job_id, {"ids": [job_id]})


async def declare(engine: Engine, name: str, needs: str | None) -> None:
    await ask(
        engine,
        """INSERT INTO holdfast_job_types (name, lifecycle, queue, policy, requires, prefers, needs, updated_at)
           VALUES (:name, 'default', 'default', :policy, '[]', '[]', :needs, {now}) RETURNING name""",
        name=name,
        needs=needs,
        policy="{}",
    )


async def finished(engine: Engine, worker: str, state: State) -> str:
    """Its hooks are set before it ends: a finished row never changes."""
    lease = await running_job(engine, worker)
    await need_hooks(engine, lease.id)
    await declare(engine, "echo", '["notes"]')
    name = "complete_jobs" if state is State.SUCCEEDED else "dead_letter_jobs"
    rows: list[Row] = await run(
        engine, getattr(q, name).with_hooks(("notes",)), **BY_LEASE[name](lease.id, lease.token), worker=worker
    )
    assert [row["id"] for row in rows] == [lease.id]
    return lease.id


# -- other conditions -------------------------------------------------------------------------------------------------


async def test_due_retries_are_those_that_are_queued_again(
    engine: Engine, worker: str, clock: MovableClock, store_url: str
) -> None:
    """Not before their time, not in other states, not where the lifecycle claims a retry directly, not used up."""
    leases = [await claimed(engine, worker, lifecycle=name) for name in ("orchestration", "default")]
    leases += [await claimed(engine, worker, lifecycle="orchestration") for _ in range(3)]
    for lease, seconds in zip(leases, (5, 5, 6, 5, 5), strict=True):
        await engine.fail(worker, lease.id, lease.token, "E_HICCUP", retry_after_seconds=seconds)
    delayed = await engine.create(NewJob(type="n", lifecycle="orchestration", delay_seconds=5))
    clock.advance(5)
    ripe, _, _, spoilt, again = leases
    assert len(await run(engine, q.requeue_jobs, ids=[again.id], reason="requeued")) == 1
    for job_id in (*(lease.id for lease in leases), delayed.id):
        await need_hooks(engine, job_id)
    await spoil(engine, store_url, spoilt.id)
    found = await run(engine, q.due_retries.with_hooks(("notes",)), limit=9)
    assert [row["id"] for row in found] == [ripe.id]


async def test_claimable_jobs_have_an_attempt_left(
    engine: Engine, worker: str, clock: MovableClock, store_url: str
) -> None:
    spoilt, _ = await due(engine, worker, clock)
    good, params = await due(engine, worker, clock)
    for job_id in (spoilt, good):
        await need_hooks(engine, job_id)
    await spoil(engine, store_url, spoilt)
    found = await run(engine, q.claimable_jobs.with_hooks(("notes",)), **params)
    assert [row["id"] for row in found] == [good]


# -- new jobs, and the version of the schema --------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [0, 1], ids=["insert_plain_jobs", "insert_jobs"])
async def test_insert_of_jobs_of_a_type_whose_hooks_are_missing(engine: Engine, priority: int) -> None:
    """Other types, with hooks or without, are no reason to refuse."""
    await declare(engine, "plain", None)
    await declare(engine, "other", '["billing"]')
    await engine.create(NewJob(type="plain", priority=priority))
    await declare(engine, "hooked", '["notes"]')
    await engine.create(NewJob(type="plain", priority=priority))
    with pytest.raises(ExtensionMissing, match="notes"):
        await engine.create(NewJob(type="hooked", priority=priority))
    assert {job.type for job in (await engine.reads.page()).jobs} == {"plain"}


async def test_insert_jobs_with_the_hooks_of_their_type(store_url: str, clock: MovableClock) -> None:
    hooks = Hooks()
    hooks.effect("notes", ["create"], ["hooked", "both"], nothing)
    engine = Engine(await open_store(store_url, clock), clock=clock, hooks=hooks)
    try:
        await declare(engine, "other", '["billing"]')
        await declare(engine, "hooked", '["notes"]')
        await declare(engine, "both", '["notes", "billing"]')
        await engine.create(NewJob(type="hooked"))
        with pytest.raises(ExtensionMissing, match="billing"):
            await engine.create(NewJob(type="both"))
        assert [job.type for job in (await engine.reads.page()).jobs] == ["hooked"]
    finally:
        await engine.close()


async def nothing(_tx: Tx, _verb: str, _job: Job) -> None:
    pass


async def test_needs_of_types_are_those_of_the_types_asked_for(engine: Engine) -> None:
    for name, needs in (("plain", None), ("hooked", '["notes"]'), ("other", '["billing"]')):
        await declare(engine, name, needs)
    rows = await run(engine, q.needs_of_types, names=["plain", "hooked"])
    assert [tuple(row) for row in rows] == [("hooked", '["notes"]')]


async def test_health_counts_only_the_migrations_of_the_platform(engine: Engine) -> None:
    """An extension that has many does not make up for one that is missing."""

    async def counted() -> int:
        [row] = await run(engine, q.health, limit=9, seconds=60.0)
        return int(row["migrations"])

    before = await counted()
    columns = "extension, number, name"
    await ask(engine, f"INSERT INTO holdfast_migrations ({columns}) VALUES ('notes', 1, 'first') RETURNING number")
    assert await counted() == before
