"""why, of a job whose type has hooks: which extension it needs, what its hooks have failed, what extensions add."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Clause, Engine, Retention
from holdfast.errors import HookFailed
from holdfast.model import Job, JobType, NewJob
from holdfast.store import Tx, open_store
from holdfast.store.queries import Query
from tests.engine.hooking import effect
from tests.engine.steps import run


@pytest.fixture
async def job(engine: Engine) -> str:
    """Of a type that has an effect of `toy` on `cancel`, which fails."""

    @effect(engine, "cancel", job_type="n")
    async def follow(tx: Tx, _verb: str, _job: Job) -> None:
        raise ZeroDivisionError("a mistake")

    await engine.job_types.declare(JobType(name="n", lifecycle="default"))
    return (await engine.create(NewJob(type="n"))).id


async def said(engine: Engine, job_id: str) -> dict[str, tuple[bool, str]]:
    return {clause.name: (clause.holds, clause.says) for clause in await engine.reads.why(job_id)}


async def test_why_reports_an_extension_that_no_live_process_has(engine: Engine, job: str, clock: MovableClock) -> None:
    missing = (False, "it needs extension toy, which no live process has")
    assert (await said(engine, job))["extension"] == missing
    await engine.maintenance.extension_tasks([])
    assert (await said(engine, job))["extension"] == (True, "it needs extension toy, which a live process has")
    clock.advance(60)
    assert (await said(engine, job))["extension"] == missing


async def test_why_reports_an_extension_that_this_process_does_not_have(
    engine: Engine, job: str, store_url: str
) -> None:
    await engine.maintenance.extension_tasks([])
    other = Engine(await open_store(store_url, engine.ctx.clock), clock=engine.ctx.clock)
    assert (await said(other, job))["extension"] == (
        True,
        "it needs extension toy, which a live process has, and this process does not",
    )
    await other.close()


async def test_why_reports_a_hook_failure_and_the_next_try(engine: Engine, job: str, clock: MovableClock) -> None:
    other = (await engine.create(NewJob(type="n"))).id
    for often, seconds in (("once", 1), ("2 times", 2)):
        with pytest.raises(HookFailed):
            await engine.cancel(job)
        again = f"the next try is at 00:00:{seconds:02} UTC"
        assert (await said(engine, job))["hook"] == (
            False,
            f"extension toy has failed its cancel {often}: ZeroDivisionError: a mistake; {again}",
        )
    assert "hook" not in await said(engine, other)
    clock.advance(2)
    holds, says = (await said(engine, job))["hook"]
    assert (holds, says.endswith("; it may be tried again since 00:00:02 UTC")) == (True, True)


async def test_why_omits_a_hook_failure_of_a_verb_that_no_longer_applies(engine: Engine, job: str, worker: str) -> None:
    async def fails(*_: Any) -> None:
        raise ZeroDivisionError("a mistake")

    engine.ctx.hooks.effect("toy", ["complete", "prune"], ["n"], fails)
    [lease] = await engine.claim(worker)
    with pytest.raises(HookFailed):
        await engine.complete(worker, lease.id, lease.token)
    assert "has failed its complete once" in (await said(engine, job))["hook"][1]
    await engine.release(worker, lease.id, lease.token)
    assert "hook" not in await said(engine, job)
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "E", permanent=True)
    await engine.maintenance.prune(Retention(dead=0))
    assert "has failed its prune once" in (await said(engine, job))["hook"][1]


async def test_why_reports_the_extension_of_a_running_job(engine: Engine, job: str, worker: str) -> None:
    await engine.claim(worker, types=["n"])
    assert [clause.name for clause in await engine.reads.why(job)] == ["state", "extension"]


async def breaks(_tx: Tx, _job: Job) -> None:
    raise ZeroDivisionError("a mistake")


async def breaks_in_sql(tx: Tx, _job: Job) -> None:
    await tx.all(Query("broken", "SELECT nothing FROM nowhere"))


async def a_number(_tx: Tx, _job: Job) -> Any:
    return 3


@pytest.mark.parametrize("broken", [breaks, breaks_in_sql, a_number])
async def test_why_includes_the_clauses_of_extensions(engine: Engine, worker: str, broken: Any) -> None:
    async def quota(tx: Tx, job: Job) -> list[Clause]:
        [row] = await tx.all(Query("one", "SELECT count(*) AS jobs FROM holdfast_jobs WHERE id = :id"), id=job.id)
        return [Clause("quota", False, f"{row['jobs']} of 1 is used")]

    async def text(_tx: Tx, _job: Job) -> str:
        return "nothing more"

    for extension, function in (("bad", broken), ("notes", quota), ("pages", text)):
        engine.ctx.hooks.explain(extension, ["n"], function)
    lease = await run(engine, worker, type="n")
    clauses = {clause.name: clause for clause in await engine.reads.why(lease.id)}
    assert list(clauses) == ["state", "bad", "quota", "pages"]
    assert (clauses["quota"].holds, clauses["quota"].says) == (False, "1 of 1 is used")
    assert clauses["pages"] == Clause("pages", True, "nothing more")
    assert clauses["bad"].holds
    assert clauses["bad"].says.startswith("extension bad ")
    other = await run(engine, worker, type="b")
    assert [clause.name for clause in await engine.reads.why(other.id)] == ["state"]
