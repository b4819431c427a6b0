"""Guards and effects: an app's own rules and rows, in the same transaction as the verb."""

import asyncio
import sqlite3
from contextlib import closing
from random import Random
from typing import Any

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Complete, Engine, Fail, Rejection
from holdfast.engine.hooks.create import CreateRequest
from holdfast.engine.hooks.moves import MoveRequest
from holdfast.engine.insert import Created, checked
from holdfast.errors import HoldfastError, HookFailed, LeaseLost, Refused, UnknownName
from holdfast.lifecycle import Lifecycles, State
from holdfast.model import Job, NewJob
from holdfast.store import Tx
from holdfast.store.migrate import sqlite_path
from holdfast.store.queries import Query
from tests.engine.hooking import adopt, effect, guard
from tests.engine.steps import UNKNOWN_ID, ask, run, stored, sweep

VERBS = ("create", "complete", "fail", "reject", "cancel")
WRITE = Query("write_entry", "INSERT INTO ledger (job, entry) VALUES (:job, :entry) RETURNING entry")


@pytest.fixture
async def ledger(engine: Engine, store_url: str) -> None:
    """A table of the app's own, beside ours."""
    table = "CREATE TABLE ledger (job text NOT NULL, entry text NOT NULL)"
    if engine.store.dialect == "sqlite":
        with closing(sqlite3.connect(sqlite_path(store_url))) as connection:
            connection.execute(table)
    else:
        server = await asyncpg.connect(store_url)
        await server.execute(table)
        await server.close()


async def entries(engine: Engine) -> list[tuple[str, str]]:
    return [
        (row["job"], row["entry"]) for row in await ask(engine, "SELECT job, entry FROM ledger ORDER BY job, entry")
    ]


async def no(_tx: Tx, request: Any) -> None:
    raise Refused(f"no {type(request).__name__}")


async def begin(engine: Engine, worker: str, verb: str) -> tuple[str, str]:
    """A job that the verb can move, and its token; a running job is not canceled immediately."""
    if verb == "cancel":
        return (await engine.create(NewJob(type="n"))).id, ""
    lease = await run(engine, worker, type="n")
    return lease.id, lease.token


async def act(engine: Engine, worker: str, verb: str, job_id: str, token: str) -> Any:
    match verb:
        case "complete":
            return await engine.complete(worker, job_id, token)
        case "fail":
            return await engine.fail(worker, job_id, token, "E", permanent=True)
        case "reject":
            return await engine.reject(worker, job_id, token, "E")
        case "cancel":
            return await engine.cancel(job_id)
        case _:
            return await engine.create(NewJob(type="n"))


@pytest.mark.parametrize("verb", VERBS)
async def test_a_guard_refuses_and_nothing_is_written(engine: Engine, worker: str, verb: str) -> None:
    """R004-8..11: the guard sees the request before the move."""
    lease = await run(engine, worker, type="n")
    guard(engine, verb)(no)
    await adopt(engine)
    before = await stored(engine, lease.id)

    with pytest.raises(Refused):
        await act(engine, worker, verb, lease.id, lease.token)

    assert await stored(engine, lease.id) == before
    assert len((await engine.reads.page()).jobs) == 1


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("verb", VERBS)
async def test_an_effect_that_raises_rolls_back_the_move(engine: Engine, worker: str, verb: str) -> None:
    """The move, its event and its attempt roll back with whatever the effect had written."""
    job_id, token = await begin(engine, worker, verb)

    @effect(engine, verb)
    async def half(tx: Tx, _verb: str, row: Job) -> None:
        await tx.one(WRITE, job=row.id, entry="half")
        raise HoldfastError("the other half failed")

    await adopt(engine)
    before = await stored(engine, job_id)
    with pytest.raises(HookFailed, match="toy"):
        await act(engine, worker, verb, job_id, token)

    assert await stored(engine, job_id) == before
    assert await entries(engine) == []
    assert len((await engine.reads.page()).jobs) == 1


@pytest.mark.usefixtures("ledger")
async def test_an_effect_commits_with_its_move(engine: Engine, worker: str) -> None:
    """R003-110, R003-163 (#267): also for a job that is reaped."""

    @effect(engine, *VERBS, "reap")
    async def note(tx: Tx, verb: str, row: Job) -> None:
        await tx.one(WRITE, job=row.id, entry=f"{verb} {row.state}")

    ends: dict[str, str] = {}
    for verb in VERBS[1:]:
        job_id, token = await begin(engine, worker, verb)
        await act(engine, worker, verb, job_id, token)
        ends[job_id] = {
            "complete": "complete succeeded",
            "fail": "fail dead",
            "reject": "reject rejected",
            "cancel": "cancel canceled",
        }[verb]
    lost = await run(engine, worker, type="n", instance="gone")
    await engine.maintenance.reap(gone=["gone"])
    ends[lost.id] = "reap retrying"

    assert await entries(engine) == sorted([*ends.items(), *((job_id, "create queued") for job_id in ends)])


@pytest.mark.usefixtures("ledger")
async def test_a_cancel_effect_runs_when_the_job_is_canceled_not_when_it_is_requested(
    engine: Engine, worker: str
) -> None:
    @effect(engine, "cancel")
    async def note(tx: Tx, verb: str, row: Job) -> None:
        await tx.one(WRITE, job=row.id, entry=f"{verb} {row.state}")

    lease = await run(engine, worker, type="n")
    await engine.cancel(lease.id)
    assert await entries(engine) == []
    await engine.release(worker, lease.id, lease.token)
    assert await entries(engine) == [(lease.id, "cancel canceled")]


async def test_hooks_apply_only_to_the_job_types_they_name(engine: Engine, worker: str) -> None:
    guard(engine, "create", job_type="b")(no)

    with pytest.raises(Refused):
        await engine.create_many([NewJob(type="a"), NewJob(type="b")])
    assert len(await engine.create_many([NewJob(type="a"), NewJob(type="a", lifecycle="crawl")])) == 2
    assert len((await engine.reads.page()).jobs) == 2


async def test_a_hook_on_a_verb_without_hooks_is_rejected(engine: Engine) -> None:
    for register in (guard, effect):
        with pytest.raises(UnknownName, match="heartbeat"):
            register(engine, "heartbeat")(no)
    with pytest.raises(UnknownName, match="reap"):
        guard(engine, "reap")(no)


async def test_a_guard_on_reject_also_applies_to_reject_queued(engine: Engine) -> None:
    guard(engine, "reject")(no)
    queued = await engine.create(NewJob(type="image", lifecycle="generation"))
    with pytest.raises(Refused):
        await engine.reject_queued(Rejection(id=queued.id, token="", code="E"))
    assert (await engine.reads.get(queued.id)).state is State.QUEUED


async def test_a_guard_is_not_called_for_a_repeat_or_a_lost_lease(engine: Engine, worker: str) -> None:
    """A repeat gets its stored answer, and a lost lease stays lost, without a call of the guard."""
    done, lost = await run(engine, worker, type="n"), await run(engine, worker, type="n")
    first = await engine.complete(worker, done.id, done.token, {"n": 1})
    await engine.release(worker, lost.id, lost.token)
    guard(engine, "complete", "fail")(no)
    await adopt(engine)

    assert await engine.complete(worker, done.id, done.token, {"n": 1}) == first
    for verb in ("complete", "fail"):
        with pytest.raises(LeaseLost):
            await act(engine, worker, verb, lost.id, lost.token)


async def test_a_repeated_request_returns_its_job_without_calling_the_guard(engine: Engine, worker: str) -> None:
    """R001-41, R004-28, R004-29, C-19: the first request used up the quota; its retry is no new one."""

    @guard(engine, "create")
    async def one_job_each(tx: Tx, request: CreateRequest) -> None:
        sql = "SELECT count(*) AS jobs FROM holdfast_jobs WHERE tenant = :tenant"
        if (await tx.all(Query("quota", sql), tenant=request.job.tenant))[0]["jobs"] >= 1:
            raise Refused("quota exceeded")

    request = NewJob(type="image", lifecycle="generation", idempotency_key="k")
    first = await engine.create(request)

    assert (await engine.create(request)).id == first.id
    assert {answer.id for answer in await asyncio.gather(*(engine.create(request) for _ in range(5)))} == {first.id}
    for another in (NewJob(type="image"), NewJob(type="image", idempotency_key="other")):
        with pytest.raises(Refused):
            await engine.create(another)
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "E", permanent=True)
    with pytest.raises(Refused):
        await engine.create(request)  # its key is free again, so this would be a new job


@pytest.mark.parametrize(
    "mistake",
    [
        lambda request: request.set_key(""),
        lambda request: request.set_key(7),
        lambda request: request.answer_with(UNKNOWN_ID),
        lambda request: request.answer_with(7),
        lambda request: setattr(request, "job", None),
    ],
    ids=["empty key", "no text", "unknown job", "no id", "no job"],
)
async def test_a_create_guard_with_an_invalid_answer_fails_only_its_own_request(engine: Engine, mistake: Any) -> None:
    @guard(engine, "create")
    async def decide(_tx: Tx, request: CreateRequest) -> None:
        if request.job.payload["n"] == 1:
            mistake(request)

    answers = await engine.create_each([checked(NewJob(type="n", payload={"n": n})) for n in range(3)])
    assert [isinstance(answer, Created) for answer in answers] == [True, False, True]
    assert isinstance(answers[1], HookFailed)
    assert engine.ctx.hook_failures["toy", "create"] == 1


async def test_a_guard_answers_with_a_job_of_the_same_tenant(engine: Engine) -> None:
    first = await engine.create(NewJob(type="plain", tenant="acme"))

    @guard(engine, "create", job_type="n")
    async def decide(_tx: Tx, request: CreateRequest) -> None:
        request.answer_with(first.id)

    assert await engine.create(NewJob(type="n", tenant="acme")) == Created(first.id, State.QUEUED, existed=True)
    with pytest.raises(HookFailed):
        await engine.create(NewJob(type="n"))


async def test_hooks_on_accept_run_when_create_accepts_the_job_itself(engine: Engine, worker: str) -> None:
    """Where acceptance is a move of its own. If it is refused, nothing was created."""
    seen: list[str] = []
    guarded: list[str] = []

    @effect(engine, "create", "accept", job_type="n")
    async def follow(_tx: Tx, verb: str, job: Job) -> None:
        seen.append(f"{verb}: {job.state}")

    @guard(engine, "accept", job_type="n")
    async def check(_tx: Tx, request: MoveRequest) -> None:
        guarded.append(request.job.state)
        if request.job.payload.get("bad"):
            raise Refused("not paid")

    wanted = NewJob(type="n", lifecycle="orchestration")
    made = await engine.create(wanted)
    assert (made.state, seen, guarded) == (State.QUEUED, ["create: created", "accept: queued"], ["created"])
    assert [event.verb for event in await engine.reads.history(made.id)] == ["create", "accept"]
    assert [lease.id for lease in await engine.claim(worker)] == [made.id]
    with pytest.raises(Refused, match="not paid"):
        await engine.create(NewJob(type="n", lifecycle="orchestration", payload={"bad": True}))
    assert [job.id for job in (await engine.reads.page()).jobs] == [made.id]
    seen.clear()
    assert (await engine.create(wanted, accept=False)).state is State.CREATED
    assert seen == ["create: created"]


# -- the ledger -------------------------------------------------------------------------------------------------------


def keep_ledger(engine: Engine) -> None:
    """C-40: reserve on create; then exactly one of commit, release, forfeit, when the job ends."""
    entry = {"succeeded": "commit", "dead": "release", "canceled": "release", "rejected": "forfeit"}

    @effect(engine, "create")
    async def reserve(tx: Tx, _verb: str, row: Job) -> None:
        await tx.one(WRITE, job=row.id, entry="reserve")

    @effect(engine, "complete", "fail", "reject", "cancel", "reap")
    async def settle(tx: Tx, _verb: str, row: Job) -> None:
        if row.state in entry:
            await tx.one(WRITE, job=row.id, entry=entry[row.state])


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("seed", range(3))
async def test_a_ledger_kept_by_effects_balances_over_random_outcomes(
    engine: Engine, worker: str, clock: MovableClock, seed: int
) -> None:
    """S11, C-40, H13, R004-12, R004-25: reserved = committed + released + forfeited, whatever happens to the jobs."""
    keep_ledger(engine)
    random = Random(seed)
    machines = Lifecycles()
    for _ in range(60):
        match random.randrange(8):
            case 0 | 1:
                lifecycle = random.choice(["generation", "default", "orchestration"])
                key = f"{lifecycle}-{random.randrange(6)}"
                await engine.create(NewJob(type="n", lifecycle=lifecycle, idempotency_key=key, max_attempts=2))
            case 2:
                await sweep(engine, clock, random.choice([10, 40]))
            case 3:
                jobs = (await engine.reads.page()).jobs
                for job in random.sample(jobs, k=min(len(jobs), 2)):
                    if random.random() < 0.5 and machines[job.lifecycle].targets("cancel", job.state):
                        await engine.cancel(job.id)
                    elif machines[job.lifecycle].targets("reject", State.QUEUED):
                        await engine.reject_queued(Rejection(id=job.id, token="", code="E"))
            case 4:
                await engine.discard(*[job.id for job in (await engine.reads.page()).jobs])
            case end:
                leases = [lease for lease in await engine.claim(worker, limit=3) if random.random() < 0.8]
                if end == 5:
                    await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases] * 2)
                elif end == 6:
                    hopeless = random.random() < 0.5
                    await engine.fail_many(
                        worker,
                        [Fail(id=lease.id, token=lease.token, code="E", permanent=hopeless) for lease in leases],
                    )
                else:
                    for lease in leases:
                        await engine.release(worker, lease.id, lease.token)

    ends = {State.SUCCEEDED: "commit", State.DEAD: "release", State.CANCELED: "release", State.REJECTED: "forfeit"}
    jobs = (await engine.reads.page(limit=500)).jobs
    expected = [(job.id, "reserve") for job in jobs] + [(job.id, ends[job.state]) for job in jobs if job.final]
    assert await entries(engine) == sorted(expected)
    assert len({job.state for job in jobs}) > 3, "too few different outcomes to prove anything"


@pytest.mark.usefixtures("ledger")
async def test_a_job_that_dies_through_retrying_calls_its_effect_once(engine: Engine, worker: str) -> None:
    """C-3, C-40: two moves in one transaction, one entry."""
    keep_ledger(engine)
    lease = await run(engine, worker, type="n", lifecycle="orchestration")
    await engine.fail(worker, lease.id, lease.token, "E", permanent=True)
    assert await entries(engine) == sorted([(lease.id, "reserve"), (lease.id, "release")])
