"""A hook that fails affects only the job it was called for."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Complete, Engine, Fail, Retention
from holdfast.engine.hooks.claim import CancelJob, ClaimRequest, Defer, RejectJob
from holdfast.engine.hooks.moves import MoveRequest
from holdfast.engine.insert import checked as ready_job
from holdfast.errors import ExtensionMissing, HookFailed, Refused
from holdfast.lifecycle import State
from holdfast.model import Job, NewJob
from holdfast.model.reports import Rejection, Release, Settled
from holdfast.store import Tx, open_store, q
from tests.engine.failing_hooks import (
    BAD,
    FAILURES,
    UNUSUAL_FAILURES,
    break_one,
    follow_nothing,
    hundred_leases,
    remove_effects,
    states,
    ten_leases,
)
from tests.engine.hooking import adopt, effect, guard
from tests.engine.steps import ask, sweep


@pytest.fixture(autouse=True)
def no_unencodable_log_capture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-xdist crashes on a captured log line with a lone surrogate."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("way") == "text":
        monkeypatch.setattr(logging.getLogger("holdfast.hooks"), "disabled", True)


@pytest.mark.parametrize("way", [*FAILURES, *UNUSUAL_FAILURES])
async def test_an_effect_that_fails_on_complete_leaves_only_its_own_job_running(
    engine: Engine, worker: str, way: str
) -> None:
    break_one(engine, way, "complete")
    leases = await hundred_leases(engine, worker)
    answers = await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases])
    bad = next(place for place, lease in enumerate(leases) if lease.payload["n"] == BAD)
    assert isinstance(answers[bad], HookFailed)
    assert sum(isinstance(answer, Settled) for answer in answers) == 99
    states = [(await engine.reads.get(lease.id)).state for lease in leases]
    assert (states.count(State.SUCCEEDED), states[bad]) == (99, State.RUNNING)
    [row] = await ask(engine, "SELECT job_id, verb, extension, failures FROM holdfast_hook_failures")
    assert tuple(row) == (leases[bad].id, "complete", "toy", 1)
    [noted] = await ask(engine, "SELECT count(*) AS n FROM holdfast_secrets")
    assert noted["n"] == 99, "what the effect of the bad one wrote is undone"


@pytest.mark.parametrize("way", FAILURES)
async def test_an_effect_that_fails_on_fail_leaves_only_its_own_job_running(
    engine: Engine, worker: str, way: str
) -> None:
    break_one(engine, way, "fail")
    leases = await hundred_leases(engine, worker)
    failures = [Fail(id=lease.id, token=lease.token, code="E", permanent=True) for lease in leases]
    answers = await engine.fail_many(worker, failures)
    assert sum(isinstance(answer, HookFailed) for answer in answers) == 1
    assert len((await engine.reads.page(limit=200)).jobs) == 100
    [dead] = await ask(engine, "SELECT count(*) AS n FROM holdfast_jobs WHERE state = 'dead'")
    assert dead["n"] == 99


@pytest.mark.parametrize("way", FAILURES)
async def test_an_effect_that_fails_on_reap_delays_only_its_own_job(
    engine: Engine, worker: str, clock: MovableClock, way: str
) -> None:
    """R003-110, R003-163 (#267): never the one without the other."""
    break_one(engine, way, "reap")
    leases = await hundred_leases(engine, worker)
    await sweep(engine, clock, 60)
    [left] = await ask(engine, "SELECT id FROM holdfast_jobs WHERE state = 'running'")
    assert left["id"] == next(lease.id for lease in leases if lease.payload["n"] == BAD)
    engine.ctx.hooks._effects.clear()
    assert await engine.maintenance.reap() == [], "not before its time"
    clock.advance(10)
    assert [row["id"] for row in await engine.maintenance.reap()] == [left["id"]]


@pytest.mark.parametrize("way", FAILURES)
async def test_an_effect_that_fails_on_cancel_refuses_only_its_own_job(engine: Engine, way: str) -> None:
    break_one(engine, way, "cancel")
    jobs = [job.id for job in await engine.create_many([NewJob(type="n", payload={"n": n}) for n in range(100)])]
    answers = await asyncio.gather(*map(engine.cancel, jobs), return_exceptions=True)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, HookFailed)] == [BAD]
    [canceled] = await ask(engine, "SELECT count(*) AS n FROM holdfast_jobs WHERE state = 'canceled'")
    assert canceled["n"] == 99


async def test_an_effect_that_fails_on_claim_defers_only_its_own_job(engine: Engine, worker: str) -> None:
    break_one(engine, "raises", "claim")
    await engine.create_many([NewJob(type="n", payload={"n": n}) for n in range(100)])
    leases = await engine.claim(worker, limit=100)
    assert len(leases) == 99
    [left] = await ask(engine, "SELECT due, state FROM holdfast_jobs WHERE state <> 'running'")
    assert (bool(left["due"]), left["state"]) == (False, "queued"), "it left the claim index for a while"


TWO_FAILURES = pytest.mark.parametrize("way", ["raises", "sql later"])


@TWO_FAILURES
async def test_an_effect_that_fails_on_release_leaves_only_its_own_job_running(
    engine: Engine, worker: str, way: str
) -> None:
    """R003-110."""
    break_one(engine, way, "release")
    leases = await ten_leases(engine, worker)
    answers = await engine.release_many(worker, [Release(lease.id, lease.token) for lease in leases])
    assert sum(isinstance(answer, HookFailed) for answer in answers) == 1
    assert await states(engine) == {"queued": 9, "running": 1}


@TWO_FAILURES
async def test_an_effect_that_fails_on_reject_leaves_only_its_own_job_running(
    engine: Engine, worker: str, way: str
) -> None:
    break_one(engine, way, "reject")
    leases = await ten_leases(engine, worker)
    verdicts = [Rejection(id=lease.id, token=lease.token, code="E") for lease in leases]
    answers = await engine.reject_many(worker, verdicts)
    assert sum(isinstance(answer, HookFailed) for answer in answers) == 1
    assert await states(engine) == {"rejected": 9, "running": 1}


@TWO_FAILURES
async def test_an_effect_that_fails_on_prune_delays_only_its_own_job(
    engine: Engine, worker: str, clock: MovableClock, way: str
) -> None:
    break_one(engine, way, "prune")
    leases = await ten_leases(engine, worker)
    await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in leases])
    clock.advance(100)
    assert await engine.maintenance.prune(Retention(succeeded=10)) == 9
    assert await engine.maintenance.prune(Retention(succeeded=10)) == 0, "not before its time"
    remove_effects(engine)
    clock.advance(10)
    assert await engine.maintenance.prune(Retention(succeeded=10)) == 1
    assert await ask(engine, "SELECT job_id FROM holdfast_hook_failures") == []


@TWO_FAILURES
async def test_an_effect_that_fails_on_requeue_delays_only_its_own_job(
    engine: Engine, worker: str, clock: MovableClock, way: str
) -> None:
    """In a lifecycle that queues a retry again instead of claiming it directly."""
    break_one(engine, way, "requeue")
    leases = await ten_leases(engine, worker, lifecycle="orchestration")
    failures = [Fail(id=lease.id, token=lease.token, code="E", retry_after_seconds=1) for lease in leases]
    await engine.fail_many(worker, failures)
    clock.advance(5)
    assert await engine.maintenance.requeue_due() == 9
    assert await engine.maintenance.requeue_due() == 0, "not before its time"
    assert await states(engine) == {"queued": 9, "retrying": 1}
    remove_effects(engine)
    clock.advance(10)
    assert await engine.maintenance.requeue_due() == 1


@TWO_FAILURES
@pytest.mark.parametrize("others", [0, 9])
async def test_an_effect_that_fails_on_accept_delays_only_its_own_job(
    engine: Engine, clock: MovableClock, way: str, others: int
) -> None:
    """Orphans: the sweep accepts the other jobs, also those that need no hooks."""
    break_one(engine, way, "accept")
    jobs = [NewJob(type="n", payload={"n": BAD + n}, lifecycle="orchestration") for n in range(1 + others)]
    await engine.create_many([*jobs, NewJob(type="plain", lifecycle="orchestration")], accept=False)
    clock.advance(100)
    assert await engine.maintenance.accept_orphans() == others + 1
    assert await engine.maintenance.accept_orphans() == 0, "not before its time"
    remove_effects(engine)
    clock.advance(10)
    assert await engine.maintenance.accept_orphans() == 1
    assert await states(engine) == {"queued": others + 2}


@pytest.mark.parametrize("way", FAILURES)
async def test_an_effect_that_fails_on_create_refuses_only_its_own_request(engine: Engine, way: str) -> None:
    break_one(engine, way, "create")
    checked = [ready_job(NewJob(type="n", payload={"n": n})) for n in range(BAD - 5, BAD + 5)]
    answers = await engine.create_each(checked)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, HookFailed)] == [5]
    assert await states(engine) == {"queued": 9}
    assert await ask(engine, "SELECT job_id FROM holdfast_hook_failures") == []


@pytest.mark.parametrize("way", FAILURES)
async def test_a_guard_that_fails_affects_only_its_own_job(engine: Engine, worker: str, way: str) -> None:
    engine.ctx.limits = replace(engine.ctx.limits, hook_seconds=0.5)

    @guard(engine, "complete", "fail", "release", "reject")
    async def fails(tx: Tx, request: MoveRequest) -> None:
        if request.job.payload["n"] == BAD:
            await FAILURES[way](tx)

    for verb, over in {"complete": "succeeded", "fail": "dead", "release": "queued", "reject": "rejected"}.items():
        leases = await ten_leases(engine, worker)
        assert len(leases) == 10
        reports = {
            "complete": [Complete(lease.id, lease.token) for lease in leases],
            "fail": [Fail(id=lease.id, token=lease.token, code="E", permanent=True) for lease in leases],
            "release": [Release(lease.id, lease.token, 1000) for lease in leases],
            "reject": [Rejection(id=lease.id, token=lease.token, code="E") for lease in leases],
        }[verb]
        answers = await getattr(engine, f"{verb}_many")(worker, reports)
        refusal = Refused if way == "refuses" else HookFailed
        assert [place for place, answer in enumerate(answers) if isinstance(answer, refusal)] == [5], verb
        assert (await states(engine))[over] == 9


async def test_an_illegal_guard_verdict_does_not_stop_other_claims(
    engine: Engine, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    verdicts: dict[int, Any] = {BAD: RejectJob("bad"), BAD + 1: Defer(-1), BAD + 2: "later"}

    @guard(engine, "claim")
    async def decide(_tx: Tx, request: ClaimRequest) -> Any:
        return verdicts.get(request.job.payload["n"])

    with caplog.at_level(logging.WARNING, "holdfast.hooks"):
        leases = await ten_leases(engine, worker, lifecycle="crawl")
    assert len(leases) == 7
    told = {record.message.partition(":")[2] for record in caplog.records}
    assert len(told) == 3
    assert all(record.extension == "toy" for record in caplog.records)  # type: ignore[attr-defined]


async def test_jobs_deferred_by_a_guard_do_not_block_the_jobs_behind_them(engine: Engine, worker: str) -> None:
    asked: list[int] = []

    @guard(engine, "claim")
    async def decide(_tx: Tx, request: ClaimRequest) -> Defer | CancelJob | None:
        asked.append(request.job.payload["n"])
        return Defer(100) if asked[-1] < 20 else CancelJob() if asked[-1] < 40 else None

    await engine.create_many([NewJob(type="n", payload={"n": n}) for n in range(60)])
    [lease] = await engine.claim(worker)
    assert lease.payload == {"n": 40}
    assert asked == list(range(41)), "those behind it were not asked about"
    assert len(await engine.claim(worker, limit=5)) == 5
    assert await states(engine) == {"queued": 34, "canceled": 20, "running": 6}


async def test_an_effect_on_another_verb_does_not_change_the_claim_order(engine: Engine, worker: str) -> None:
    """No hook is called: one statement, in the order of priority."""
    break_one(engine, "raises", "complete")
    await engine.create_many([NewJob(type="n", payload={"n": n}, priority=n % 3) for n in range(30)])
    assert [lease.priority for lease in await engine.claim(worker, limit=12)] == [2] * 10 + [1] * 2


async def test_a_hook_failure_is_deleted_when_the_same_verb_succeeds_for_the_job(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    break_one(engine, "raises", "complete", "release")
    await engine.create_many([NewJob(type="n", payload={"n": BAD}) for _ in range(2)])
    leases = await engine.claim(worker, limit=2)
    for lease in leases:
        for report in (engine.complete, engine.release):
            with pytest.raises(HookFailed):
                await report(worker, lease.id, lease.token)

    async def known() -> set[tuple[str, str]]:
        return {
            (row["job_id"], row["verb"]) for row in await ask(engine, "SELECT job_id, verb FROM holdfast_hook_failures")
        }

    engine.ctx.hooks._effects.clear()
    effect(engine, "complete")(follow_nothing)
    await engine.complete(worker, leases[0].id, leases[0].token)
    assert await known() == {(leases[0].id, "release"), *((leases[1].id, verb) for verb in ("complete", "release"))}
    clock.advance(100)
    await engine.maintenance.prune(Retention(succeeded=1))
    assert await known() == {(leases[1].id, verb) for verb in ("complete", "release")}


async def test_hooked_jobs_reports_earlier_failures_per_job_and_verb(engine: Engine) -> None:
    """So that no DELETE runs where no hook has failed."""
    break_one(engine, "raises", "cancel")
    bad, other = [one.id for one in await engine.create_many([NewJob(type="n", payload={"n": BAD})] * 2)]
    with pytest.raises(HookFailed):
        await engine.cancel(bad)

    async def failed(verb: str) -> list[bool]:
        rows = await engine.store.read(lambda tx: tx.all(q.hooked_jobs, ids=[bad, other], verb=verb))
        return [bool(row["failed"]) for row in rows]

    assert (await failed("cancel"), await failed("claim")) == ([True, False], [False, False])


async def test_a_process_without_the_extension_cannot_move_its_jobs(
    engine: Engine, worker: str, clock: MovableClock, store_url: str
) -> None:
    @effect(engine, "complete")
    async def follow(_tx: Tx, _verb: str, _job: Job) -> None:
        pass

    await adopt(engine, "n")
    queued = (await engine.create(NewJob(type="n"))).id
    other = Engine(await open_store(store_url, clock), clock=clock)
    try:
        with pytest.raises(ExtensionMissing, match="toy"):
            await other.create(NewJob(type="n"))
        with pytest.raises(ExtensionMissing, match="toy"):
            await other.cancel(queued)
        assert await other.claim(worker) == []
        assert not (await other.polls.poll(worker)).any
        [lease] = await engine.claim(worker)
        for answers in (
            await other.complete_many(worker, [Complete(lease.id, lease.token)]),
            await other.release_many(worker, [Release(lease.id, lease.token)]),
            await other.fail_many(worker, [Fail(id=lease.id, token=lease.token, code="E")]),
            await other.reject_many(worker, [Rejection(id=lease.id, token=lease.token, code="E")]),
        ):
            assert isinstance(answers[0], ExtensionMissing)
        clock.advance(100_000)
        for _ in range(3):
            clock.advance(500)
            assert await other.maintenance.reap() == []
        assert (await engine.reads.get(queued)).state is State.RUNNING
    finally:
        await other.close()
