"""Guards on claim: they allow, defer, reject or cancel each job before a worker gets it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.hooks.claim import CancelJob, ClaimRequest, Defer, RejectJob
from holdfast.engine.hooks.moves import REFUSED_SECONDS
from holdfast.errors import Refused
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.store import Tx, q
from tests.engine.hooking import adopt, guard
from tests.engine.steps import ask, stored
from tests.known.test_corrupt_rows import spoil

VERDICTS: dict[str, Any] = {
    "reject": RejectJob("SAFE_BLOCK", "no"),
    "cancel": CancelJob("gone"),
    "defer": Defer(30, "too many of them"),
    "allow": None,
}


async def answering(engine: Engine, verdicts: dict[str, Any] = VERDICTS) -> None:
    """A guard that answers what the payload names."""

    @guard(engine, "claim", job_type="n")
    async def decide(_tx: Tx, request: ClaimRequest) -> Any:
        verdict = verdicts[request.job.payload["verdict"]]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    await adopt(engine, "n")


def job(verdict: str, lifecycle: str = "generation") -> NewJob:
    return NewJob(type="n", lifecycle=lifecycle, payload={"verdict": verdict})


async def test_jobs_behind_deferred_or_rejected_ones_are_claimed_in_the_same_call(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R004-2, C-4: a job that may not run does not block the jobs behind it."""
    await answering(engine)
    made = await engine.create_many([job("reject"), job("defer"), job("reject"), job("allow"), job("allow")])

    assert [lease.id for lease in await engine.claim(worker)] == [made[3].id]
    states = [(await engine.reads.get(one.id)).state for one in made]
    assert states == [State.REJECTED, State.QUEUED, State.REJECTED, State.RUNNING, State.QUEUED]
    assert [lease.id for lease in await engine.claim(worker, limit=5)] == [made[4].id]
    put_off = await engine.reads.get(made[1].id)
    assert (put_off.due, put_off.reason) == (False, "too many of them")
    assert "it waits 30 s more" in (said := " ".join(clause.says for clause in await engine.reads.why(put_off.id)))
    assert "(too many of them)" in said


async def test_a_claim_guard_can_cancel_a_job_whose_lifecycle_allows_it(engine: Engine, worker: str) -> None:
    await answering(engine)
    made = await engine.create(job("cancel", "default"))
    assert await engine.claim(worker) == []
    found = await engine.reads.get(made.id)
    assert (found.state, found.reason) == (State.CANCELED, "gone")


@pytest.mark.parametrize(
    ("verdict", "lifecycle"),
    [
        (RejectJob("SAFE_BLOCK"), "images"),
        (CancelJob(), "images"),
        (RejectJob("", "no code"), "generation"),
        (RejectJob("E", 7), "generation"),  # type: ignore[arg-type]
        (CancelJob(""), "default"),
        (Defer(-1), "default"),
        (Defer(1, " "), "default"),
        ("yes", "default"),
        (RuntimeError("broken"), "default"),
    ],
    ids=str,
)
async def test_a_guard_verdict_that_the_lifecycle_does_not_allow_is_recorded_as_a_hook_failure(
    engine: Engine, worker: str, verdict: Any, lifecycle: str
) -> None:
    """The claim succeeds, other jobs are claimed, and the job is deferred."""
    await answering(engine, {"odd": verdict, "allow": None})
    odd, fine = await engine.create_many([job("odd", lifecycle), job("allow", lifecycle)])

    assert [lease.id for lease in await engine.claim(worker, limit=2)] == [fine.id]
    [failure] = await ask(engine, "SELECT job_id, verb, extension, failures FROM holdfast_hook_failures")
    assert tuple(failure) == (odd.id, "claim", "toy", 1)
    assert (await engine.reads.get(odd.id)).state is State.QUEUED


async def test_a_claim_guard_that_raises_refused_defers_the_job(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await answering(engine, {"refuse": Refused("not now"), "allow": None})
    refused, fine = await engine.create_many([job("refuse"), job("allow")])
    assert [lease.id for lease in await engine.claim(worker)] == [fine.id]
    assert await put_off(engine) == {refused.id: ("claim", "toy", 0, "not now", REFUSED_SECONDS)}
    assert ((await engine.reads.get(refused.id)).due, (await engine.reads.get(refused.id)).reason) == (False, "refused")
    assert (await engine.reads.get(refused.id)).run_at.timestamp() == clock.now().timestamp() + REFUSED_SECONDS


async def put_off(engine: Engine) -> dict[str, tuple[Any, ...]]:
    sql = "SELECT job_id, verb, extension, failures, error, next_at, {now} AS now_at FROM holdfast_hook_failures"
    rows = await ask(engine, sql)
    return {row["job_id"]: (*tuple(row)[1:5], (row["next_at"] - row["now_at"]).total_seconds()) for row in rows}


async def test_why_reports_the_reason_for_which_a_guard_deferred_a_job(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    verdicts: dict[str, Any] = {"busy": Defer(30, "over quota"), "later": Defer(90)}
    await answering(engine, verdicts)
    await engine.maintenance.extension_tasks([])
    busy, later = await engine.create_many([job("busy"), job("later")])

    async def said(job_id: str) -> tuple[bool, str]:
        return next((one.holds, one.says) for one in await engine.reads.why(job_id) if one.name == "hook")

    assert await engine.claim(worker) == []
    toy = "extension toy has deferred its claim until"
    assert await said(busy.id) == (False, f"{toy} 00:00:30 UTC: over quota")
    assert await said(later.id) == (False, f"{toy} 00:01:30 UTC: deferred")
    clock.advance(30)
    assert await said(busy.id) == (True, f"{toy} 00:00:30 UTC: over quota"), "now it waits for a worker"
    verdicts["busy"] = RuntimeError("broken")
    assert await engine.claim(worker) == []
    assert (await said(busy.id))[1].startswith("extension toy has failed its claim once: RuntimeError: broken")
    clock.advance(5)
    verdicts["busy"] = Defer(7, "again")
    engine.ctx.hooks.guard("pay", ["claim"], ["n"], engine.ctx.hooks.guards("claim", "n").pop().function)
    assert await engine.claim(worker) == []
    assert await put_off(engine) == {
        busy.id: ("claim", "pay", 0, "again", 7),
        later.id: ("claim", "toy", 0, "deferred", 55),
    }
    clock.advance(10)
    verdicts["busy"] = None
    [lease] = await engine.claim(worker)
    assert [clause.name for clause in await engine.reads.why(lease.id)] == ["state", "extension"]
    assert set(await put_off(engine)) == {later.id}


async def test_a_refused_acceptance_is_retried_later_and_does_not_block_other_orphans(
    engine: Engine, clock: MovableClock
) -> None:
    engine.ctx.limits = replace(engine.ctx.limits, sweep_batch=1)
    refused = "not paid"

    @guard(engine, "accept", job_type="n")
    async def decide(_tx: Tx, request: Any) -> None:
        if refused and request.job.payload["verdict"] == "refuse":
            raise Refused(refused)

    await adopt(engine, "n")
    odd, fine = await engine.create_many([job(name, "orchestration") for name in ("refuse", "allow")], accept=False)
    for seconds in (100, 60):
        clock.advance(seconds)
        await engine.maintenance.accept_orphans()
        assert await put_off(engine) == {odd.id: ("accept", "toy", 0, refused, REFUSED_SECONDS)}
        refused = "still not paid"
        assert (await engine.maintenance.accept_orphans()) == (seconds == 100)
    assert (await engine.reads.get(fine.id)).state is State.QUEUED
    refused = ""
    clock.advance(60)
    assert await engine.maintenance.accept_orphans() == 1
    assert await put_off(engine) == {}


async def test_a_claim_guard_cannot_reject_a_retrying_job(engine: Engine, worker: str) -> None:
    """`images` claims retries where they wait; only what is queued can be rejected."""
    verdicts: dict[str, Any] = {"later": None}
    await answering(engine, verdicts)
    policy = {"backoff_base_seconds": 0}
    made = await engine.create(NewJob(type="n", lifecycle="images", payload={"verdict": "later"}, policy=policy))
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "E")
    verdicts["later"] = RejectJob("SAFE_BLOCK")
    assert await engine.claim(worker) == []
    waits = await engine.reads.get(made.id)
    assert (waits.state, waits.due, waits.reason) == (State.RETRYING, False, "E"), "why it is tried again stays"
    assert len(await ask(engine, "SELECT job_id FROM holdfast_hook_failures")) == 1


async def test_claimable_jobs_with_hooks_apply_the_same_conditions_as_without(
    engine: Engine, worker: str, store_url: str, clock: MovableClock
) -> None:
    """Due, of this lane, urgent enough, long enough there for workers that are not preferred, with an attempt left,
    and with hooks of ours."""
    plain = await engine.create(job("allow"))
    await answering(engine)
    await ask(engine, "UPDATE holdfast_jobs SET needs = NULL WHERE id = :id RETURNING id", id=plain.id)
    found, spoilt, _late, _low, _other = await engine.create_many(
        [
            job("allow"),
            job("allow"),
            msgspec.structs.replace(job("allow"), delay_seconds=60),
            msgspec.structs.replace(job("allow"), priority=-1),
            msgspec.structs.replace(job("allow"), queue="other"),
        ]
    )
    await spoil(engine, store_url, spoilt.id)
    [lane] = await ask(engine, "SELECT lane FROM holdfast_jobs WHERE id = :id", id=found.id)

    async def claimable(waits: float) -> list[str]:
        query, wanted = (
            q.claimable_jobs.with_hooks(("toy",)),
            {"lane": lane["lane"], "floor": 0, "ceiling": 100, "most": 9},
        )
        rows = await engine.store.write(lambda tx: tx.all(query, waits=waits, **wanted))
        return [row["id"] for row in rows]

    assert await claimable(0) == [found.id]
    assert await claimable(1) == []
    clock.advance(-10)
    assert await claimable(1) == [found.id], "its time lies ahead because the clock was set back"


async def test_defer_jobs_changes_only_waiting_jobs_with_the_hooks_of_this_process(engine: Engine, worker: str) -> None:
    await answering(engine)
    waits, other, runs = await engine.create_many([job("allow") for _ in range(3)])
    plain = await engine.create(NewJob(type="plain"))
    before = [await stored(engine, one.id) for one in (other, plain)]
    await ask(engine, "UPDATE holdfast_jobs SET priority = 9 WHERE id = :id RETURNING id", id=runs.id)
    [lease] = await engine.claim(worker, types=["n"])
    assert lease.id == runs.id
    query, seconds = q.defer_jobs.with_hooks(("toy",)), [(one.id, 5.0, "x") for one in (waits, runs, plain)]
    deferred = await engine.store.write(lambda tx: tx.all(query, deferred=seconds))
    assert [row["id"] for row in deferred] == [waits.id]
    assert [await stored(engine, one.id) for one in (other, plain)] == before
