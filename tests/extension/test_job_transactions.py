"""`ctx.transaction()`: own rows, new jobs and the end of the job itself are one commit, while the lease is held."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from holdfast import App, Context, SyncContext
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import Invalid, JobFailed, LeaseLost, Refused
from holdfast.extend import Extension, MoveRequest, Tx
from holdfast.lifecycle import State
from holdfast.model import Job
from holdfast.model.reports import HeldLease
from holdfast.settings import Settings
from holdfast.store import connect
from holdfast.store.migrate import migrate
from holdfast.worker.processes.process_pool import ProcessPool
from tests.extension import toy
from tests.worker.in_process import until, working

NESTED = [*["transaction_open"] * 4, "already_completed"]


@pytest.fixture
def ext() -> Extension:
    return Extension("notes", package="tests.extension.toy")


@pytest.fixture
async def app(store_url: str, ext: Extension) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url), name="transactions")
    await migrate(store_url, [ext])
    yield app
    await app.close()


async def entries(app: App, ext: Extension) -> list[str]:
    engine = await app.engine()
    return [row["entry"] for row in await engine.store.read(lambda tx: tx.all(ext.q.entries))]


async def test_rows_jobs_and_the_completion_are_committed_together(app: App, ext: Extension) -> None:
    app.include(ext)
    seen: list[Any] = []

    @app.job(queue="elsewhere")
    async def child(n: int) -> None: ...

    @app.job()
    async def parent(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            await tx.run(ext.q.add_entry, job=ctx.job_id, entry="kept")
            made = await tx.enqueue(child, 7)
            await tx.complete({"child": made.id})
            assert (await tx.one(ext.q.entries))["entry"] == "kept"
            seen.append(made.id)
        return "not looked at"

    async with working(app, queues=["default"]) as at_work:
        job = await parent.enqueue()
        result = await job.result(60)
        await until(lambda: not at_work.worker.slots.executions)
    assert result == {"child": seen[0]}
    assert await entries(app, ext) == ["kept"]
    made = await app.job_handle(seen[0]).get()
    assert (made.parent_id, made.payload, made.state) == (job.id, {"n": 7}, State.QUEUED)
    assert ("complete", 1) not in at_work.source.calls  # it is recorded: there is nothing to report
    assert [event.verb for event in await (await app.engine()).reads.history(job.id)] == ["create", "claim", "complete"]


async def test_an_exception_rolls_back_and_fails_the_job(app: App, ext: Extension) -> None:
    app.include(ext)

    @app.job(max_attempts=1)
    async def broken(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.run(ext.q.add_entry, job=ctx.job_id, entry="kept")
            await tx.enqueue(broken)
            await tx.complete()
            raise ValueError("no")

    async with working(app):
        job = await broken.enqueue()
        with pytest.raises(JobFailed, match="no"):
            await job.result(60)
    assert await entries(app, ext) == []
    assert sum(number for *_, number in await (await app.engine()).reads.counts()) == 1


async def test_work_after_the_completion_in_a_transaction_changes_nothing(app: App, ext: Extension) -> None:
    app.include(ext)
    later = asyncio.Event()

    @app.job(max_attempts=1)
    async def done_early(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            await tx.complete("done")
        await later.wait()
        with pytest.raises(LeaseLost, match="succeeded"):
            async with ctx.transaction() as tx:
                pass
        raise ValueError("too late")

    async with working(app) as at_work:
        job = await done_early.enqueue()
        assert await job.result(60) == "done"
        [run] = at_work.worker.slots.running()
        at_work.worker.executor.lose(run)  # as a heartbeat does that does not find the lease
        later.set()
        await until(lambda: not at_work.worker.slots.executions)
    assert at_work.source.calls.count(("fail", 1)) == 0
    assert (await job.get()).state is State.SUCCEEDED


async def test_a_lost_lease_commits_nothing(app: App, ext: Extension) -> None:
    app.include(ext)
    told: list[str] = []

    @app.job(max_attempts=5)
    async def robbed(ctx: Context) -> str:
        if ctx.fence > 1:
            return "second"
        await engine.release(at_work.source.worker, ctx.job_id, ctx.lease_token)  # somebody else has it by now
        try:
            async with ctx.transaction() as tx:
                await tx.run(ext.q.add_entry, job=ctx.job_id, entry="stolen")
        except LeaseLost as error:
            told.append(error.code)
        return "first"

    engine = await app.engine()
    async with working(app) as at_work:
        job = await robbed.enqueue()
        assert await job.result(60) == "second"
        await until(lambda: told, seconds=60)  # the first may be slower than the second
    assert told == ["lease_lost"]
    assert await entries(app, ext) == []


async def test_a_long_transaction_does_not_delay_heartbeats(
    app: App, ext: Extension, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store_url.startswith("sqlite"):
        pytest.skip("SQLite allows one writer at a time")
    monkeypatch.setattr(connect, "IDLE_IN_TRANSACTION_SECONDS", 120.0)
    app.include(ext)
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.job(queue="elsewhere")
    async def victim() -> None: ...

    @app.job()
    async def slow(ctx: Context, unwanted: str) -> Any:
        async with ctx.transaction() as tx:
            await tx.withdraw(unwanted)
            inside.set()
            await go_on.wait()
            await tx.complete("held")

    @app.job()
    async def neighbour(ctx: Context) -> None:
        await go_on.wait()

    engine = await app.engine()
    async with working(app, queues=["default"]) as at_work:
        job, other = await slow.enqueue((await victim.enqueue()).id), await neighbour.enqueue()
        await asyncio.wait_for(inside.wait(), 60)
        await until(lambda: len(at_work.worker.slots.running()) == 2)
        held = [HeldLease(run.lease.id, run.lease.token) for run in at_work.worker.slots.running()]
        async with asyncio.timeout(60):
            beat = await engine.heartbeat(at_work.source.worker, held)
        assert (beat.lost, sorted(beat.expires_at)) == ([], sorted([job.id, other.id]))
        gone = [HeldLease(lease.id, "00000000-0000-4000-8000-000000000000") for lease in held]
        assert len((await engine.heartbeat(at_work.source.worker, gone)).lost) == 2
        go_on.set()
        assert await job.result(60) == "held"


async def test_hooks_run_inside_the_transaction_and_a_guard_can_roll_it_back(app: App, ext: Extension) -> None:
    @ext.guard("complete", job_type="guarded")
    async def only_even(tx: Tx, request: MoveRequest) -> None:
        if request.report.result % 2:
            raise Refused("odd", code="odd_result")

    @ext.effect("complete", job_type="guarded")
    async def book(tx: Tx, verb: str, job: Job) -> None:
        await tx.run(ext.q.add_entry, job=job.id, entry=f"booked {job.result}")

    @app.job(max_attempts=1)
    async def guarded(ctx: Context, result: int) -> Any:
        async with ctx.transaction() as tx:
            await tx.run(ext.q.add_entry, job=ctx.job_id, entry="own")
            await tx.complete(result)

    app.include(ext)
    async with working(app):
        odd, even = await guarded.enqueue(1), await guarded.enqueue(2)
        assert await even.result(60) == 2
        with pytest.raises(JobFailed, match="odd"):
            await odd.result(60)
    assert sorted(await entries(app, ext)) == ["booked 2", "own"]


async def test_a_sync_handler_uses_a_plain_context_manager(app: App, ext: Extension) -> None:
    app.include(ext)

    @app.job()
    def plain(ctx: SyncContext, fail: bool) -> Any:
        try:
            with ctx.transaction() as tx:
                tx.run(ext.q.add_entry, job=ctx.job_id, entry="sync")
                tx.enqueue("leaf", n=1)
                if fail:
                    raise KeyError("undo")
                tx.complete([row["entry"] for row in tx.all(ext.q.entries)])
        except KeyError:
            with ctx.transaction() as tx:
                tx.complete(tx.one(ext.q.entries))

    async with working(app):
        assert await (await plain.enqueue(True)).result(60) is None
        assert await (await plain.enqueue(False)).result(60) == ["sync"]
    assert await entries(app, ext) == ["sync"]


async def test_reports_and_nested_transactions_are_rejected(app: App, ext: Extension) -> None:
    app.include(ext)

    @app.job()
    async def nested(ctx: Context) -> list[str]:
        codes = []
        async with ctx.transaction() as tx:
            started = asyncio.create_task(ctx.progress(5))
            reports = (lambda: ctx.progress(5), lambda: started)
            for inner in (*reports, nested.enqueue, lambda: _opened(ctx), lambda: _twice(tx)):
                with pytest.raises(Invalid) as refused:
                    await inner()
                codes.append(refused.value.code)
        return codes

    async with working(app):
        assert await (await nested.enqueue()).result(60) == NESTED


async def _opened(ctx: Context) -> None:
    async with ctx.transaction():
        pass


async def _twice(tx: Any) -> None:
    await tx.complete(NESTED)
    await tx.complete(2)


async def test_a_sync_handler_continues_after_a_rejected_call_inside_a_transaction(app: App, ext: Extension) -> None:
    app.include(ext)

    @app.job()
    def nested(ctx: SyncContext) -> None:
        with ctx.transaction(), pytest.raises(Invalid, match=r"inside ctx\.transaction"):
            ctx.progress(5)
        ctx.save("saved")
        with ctx.transaction() as tx:
            tx.complete("done")

    async with working(app):
        job = await nested.enqueue()
        assert await job.result(60) == "done"
    assert (await job.get()).checkpoint == "saved"


async def test_other_tasks_of_the_handler_run_during_a_transaction(app: App, ext: Extension) -> None:
    app.include(ext)

    @app.job(max_attempts=1)
    async def film(ctx: Context) -> str:
        inside, begun = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            async with ctx.transaction() as tx:
                inside.set()
                await begun.wait()
                await tx.run(ext.q.add_entry, job=ctx.job_id, entry="written")

        async def render() -> None:
            await inside.wait()
            begun.set()
            async with ctx.part("720p") as part:
                await part.progress(50)
            async with ctx.transaction() as tx:
                await tx.run(ext.q.add_entry, job=ctx.job_id, entry="rendered")

        await asyncio.gather(write(), render())
        return "both"

    async with working(app):
        job = await film.enqueue()
        assert await job.result(60) == "both"
    assert await entries(app, ext) == ["rendered", "written"]
    assert [str(part.status) for part in await (await app.engine()).reads.parts(job.id)] == ["completed"]


async def test_a_handler_cancels_another_job_in_its_transaction(app: App, ext: Extension) -> None:
    app.include(ext)

    @app.job(queue="elsewhere")
    async def victim() -> None: ...

    @app.job()
    async def canceler(ctx: Context, job_id: str, fail: bool) -> bool:
        async with ctx.transaction() as tx:
            canceled = await tx.cancel(job_id, "not wanted")
            if fail:
                raise ctx.reject("NO")
        return canceled

    async with working(app, queues=["default"]):
        other = await victim.enqueue()
        with pytest.raises(JobFailed):
            await (await canceler.enqueue(other.id, True)).result(60)
        assert (await other.get()).state is State.QUEUED
        assert await (await canceler.enqueue(other.id, False)).result(60) is True
    job = await other.get()
    assert (job.state, job.reason) == (State.CANCELED, "not wanted")


async def test_a_handler_in_a_child_process_uses_transactions(store_url: str) -> None:
    settings = Settings(database_url=store_url)
    toy.app.settings = settings
    await migrate(store_url, toy.app.extensions.values())
    children = ProcessPool("tests.extension.toy:app", most=1, clock=Clock(), settings=msgspec.to_builtins(settings))
    try:
        async with working(toy.app, children=children) as at_work:
            job = await toy.copy.enqueue("hello")
            assert await job.result(60) == 5
            await until(lambda: not at_work.worker.slots.executions)
        assert "copied" in await entries(toy.app, toy.ext)
        assert ("fail", 1) not in at_work.source.calls
        engine: Engine = await toy.app.engine()
        assert [(part.name, str(part.status), part.done) for part in await engine.reads.parts(job.id)] == [
            ("words", "completed", 1)
        ]
        assert [row.id for row in (await engine.reads.page()).jobs if row.parent_id == job.id]
    finally:
        await toy.app.close()
