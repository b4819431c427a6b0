"""Control jobs: `system.cancel` ends another job, in every lifecycle and wherever it runs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from holdfast import App, Client, SyncContext
from holdfast.clock import Clock
from holdfast.control import control
from holdfast.errors import LeaseLost, Refused
from holdfast.extend import Extension, MoveRequest, Tx
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.model import Job, NewJob
from holdfast.model.key import NewKey, Scope
from holdfast.model.reports import HeldLease, Withdrawal
from holdfast.settings import Settings
from holdfast.worker.config import WorkerConfig
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.processes.process_pool import ProcessPool
from holdfast.worker.runtime import Worker
from holdfast.worker.sources.http import HttpSource
from tests.engine.steps import UNKNOWN_ID
from tests.extension.endless_image import app as endless
from tests.server.steps import ADMIN, Served, bearer, serving
from tests.worker.in_process import is_done, until, working


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url), name="control-app")
    app.include(control())
    yield app
    await app.close()


@pytest.fixture
async def served(store_url: str, app: App) -> AsyncIterator[Served]:
    async with serving(store_url, app=app) as served:
        yield served


async def image(served: Served, **more: Any) -> str:
    return (await served.engine.create(NewJob(type="resize", lifecycle="images", **more))).id


async def failed_once(served: Served) -> str:
    worker = (await served.engine.workers.register()).id
    made = await image(served, policy={"backoff_base_seconds": 600})
    [lease] = await served.engine.claim(worker, types=["resize"])
    await served.engine.fail(worker, lease.id, lease.token, "E_BLUR")
    return made


async def cancel(served: Served, job_id: str) -> str:
    answer = await served.http.post("/jobs", json={"jobType": "system.cancel", "payload": {"job": job_id}})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


async def ended(served: Served, job_id: str) -> dict[str, Any]:
    answer = await served.http.get(f"/jobs/{job_id}", headers={"Prefer": "wait=20"})
    return dict(answer.json())


async def told(served: Served, job_id: str) -> list[tuple[Any, ...]]:
    answer = await served.http.get(f"/api/admin/jobs/{job_id}/events", headers=ADMIN)
    return [(event["verb"], event.get("from"), event.get("to"), event["actor"]) for event in answer.json()["events"]]


async def test_a_queued_image_is_ended_by_a_control_job(served: Served, app: App) -> None:
    """R000-20, R000-24, C-7: the API only creates a job; a worker makes the moves, and queued -> failed is none."""
    waits, later = await image(served), await image(served, delay_seconds=3600)
    async with working(app):
        wishes = [await cancel(served, job_id) for job_id in (waits, later)]
        assert [(await ended(served, wish))["result"]["status"] for wish in wishes] == ["FAILED", "FAILED"]

    for job_id, wish in zip((waits, later), wishes, strict=True):
        assert (await told(served, job_id))[1:] == [
            ("claim", "queued", "processing", "worker"),
            ("fail", "processing", "failed", "worker"),
        ]
        job = await served.engine.reads.get(job_id)
        assert (job.state, job.reason, job.error["code"]) == (State.DEAD, "canceled", "canceled")
        record = (await served.engine.reads.history(job_id))[-1].data["context"]
        assert (record["control"], record["by"]) == ("system.cancel", wish)


async def test_a_waiting_retry_is_ended_by_a_control_job(served: Served, app: App) -> None:
    """R000-24, R000-32, C-23: failed_retryable -> failed by a worker, a change of state and no deletion."""
    waits = await failed_once(served)
    async with working(app):
        wish = await cancel(served, waits)
        assert (await ended(served, wish))["result"] == {"job": waits, "status": "FAILED"}

    assert (await told(served, waits))[-1] == ("fail", "failed_retryable", "failed", "worker")
    error = (await served.engine.reads.get(waits)).error
    assert (error["code"], error["context"]) == ("canceled", {"control": "system.cancel", "by": wish})
    assert len(await served.engine.reads.attempts(waits)) == 1


async def test_withdraw_cancels_where_the_lifecycle_has_a_cancel(served: Served, app: App) -> None:
    """C-7: by a control job or by the route, the history says `system.cancel`."""
    both = [(await served.engine.create(NewJob(type="n"))).id for _ in range(2)]
    async with working(app):
        wish = await cancel(served, both[0])
        await served.http.post(f"/jobs/{both[1]}/cancel")
        assert (await ended(served, wish))["result"]["status"] == "CANCELED"
    for job_id, actor in zip(both, ("system", "client"), strict=True):
        last = (await served.engine.reads.history(job_id))[-1]
        assert (last.verb, last.to_state, last.actor) == ("cancel", "canceled", actor)
        assert last.data == {"control": "system.cancel"}


async def test_a_running_job_without_a_cancel_is_asked_to_stop(served: Served, app: App) -> None:
    """C-7, R000-24: the request is recorded at once; what the worker then reports ends the job, as failed by it."""
    engine, worker = served.engine, (await served.engine.workers.register()).id
    made = await image(served)
    [lease] = await engine.claim(worker, types=["resize"])
    async with working(app):
        wish = await cancel(served, made)
        assert (await ended(served, wish))["result"] == {"job": made, "status": "RUNNING"}
    assert (await engine.heartbeat(worker, [HeldLease(lease.id, lease.token)])).cancel == [made]
    assert (await served.http.post(f"/jobs/{made}/cancel")).status_code == 409
    await engine.release(worker, lease.id, lease.token)
    assert (await told(served, made))[-2:] == [
        ("cancel", None, None, "system"),
        ("fail", "processing", "failed", "worker"),
    ]
    view = (await served.http.get(f"/jobs/{made}")).json()
    assert (view["status"], view["error"]["code"]) == ("FAILED", "canceled")


@pytest.mark.parametrize("job_type", ["computing", "sleeping"])
async def test_a_handler_in_a_child_process_is_interrupted_by_a_control_job(store_url: str, job_type: str) -> None:
    """Its worker learns of it from a heartbeat, and kills the child at the end of the grace period."""
    endless.settings = settings = Settings(database_url=store_url)
    children = ProcessPool(
        "tests.extension.endless_image:app", most=1, clock=Clock(), settings=msgspec.to_builtins(settings)
    )
    engine = await endless.engine()
    try:
        async with working(endless, children=children) as at_work:
            policy = {"cancel_grace_seconds": 1}
            made = await engine.create(NewJob(type=job_type, lifecycle="images", policy=policy))
            await until(lambda: any(run.child for run in at_work.worker.slots.running()))
            wish = await engine.create(NewJob(type="system.cancel", payload={"job": made.id}))
            await until(lambda: is_done(endless, wish.id))
            held = HeldLease(made.id, str((await engine.reads.get(made.id)).lease_token))
            beat = await engine.heartbeat(at_work.source.worker, [held])
            at_work.worker.on_heartbeat(HeartbeatResult(cancel=[held] if beat.cancel == [made.id] else []))
            await until(lambda: is_done(endless, made.id), seconds=15)
        job = await engine.reads.get(made.id)
        assert (job.state, job.reason, job.error["code"]) == (State.DEAD, "canceled", "canceled")
        assert [event.verb for event in await engine.reads.history(made.id)] == ["create", "claim", "cancel", "fail"]
        assert (await engine.reads.get(wish.id)).result == {"job": made.id, "status": "RUNNING"}
    finally:
        await children.close()
        await endless.close()


async def test_a_job_of_another_tenant_is_not_found(served: Served, app: App) -> None:
    """SEC: nor one that does not exist; the control job fails and says so."""
    foreign = await image(served, tenant="other")
    async with working(app):
        for job_id in (foreign, UNKNOWN_ID, "no id"):
            view = await ended(served, await cancel(served, job_id))
            assert (view["status"], view["error"]["code"]) == ("FAILED", "job_not_found")
    assert (await served.engine.reads.get(foreign)).state is State.QUEUED


async def test_a_remote_worker_runs_control_jobs_too(served: Served, app: App) -> None:
    """R000-32: it has no database, and asks the server."""
    waits, key = await failed_once(served), (await served.register())["apiKey"]
    source = HttpSource(Client(served.url, key), Clock(), Ids())
    worker = Worker(source, app.handlers, config=WorkerConfig(heartbeats=False))
    running = asyncio.create_task(worker.run())
    try:
        wish = await cancel(served, waits)
        assert (await ended(served, wish))["result"] == {"job": waits, "status": "FAILED"}
    finally:
        worker.stop()
        await running
        await source.close()


async def test_a_handler_withdraws_in_its_own_transaction(served: Served, app: App) -> None:
    """What the handler does besides is one commit with it."""
    waits = [await failed_once(served), await image(served)]

    @app.job()
    def tidy(ctx: SyncContext) -> None:
        with ctx.transaction() as tx:
            assert [tx.withdraw(job, "tidied").state for job in waits] == [State.DEAD, State.DEAD]
            if ctx.attempt == 1:
                raise ConnectionError("undone")

    async with working(app):
        await (await tidy.options(policy={"backoff_base_seconds": 0}).enqueue()).result(60)
    assert [(await served.engine.reads.get(job)).reason for job in waits] == ["tidied", "tidied"]
    assert [event.verb for event in await served.engine.reads.history(waits[1])] == ["create", "claim", "fail"]


async def test_the_ledger_of_a_withdrawn_job_balances(store_url: str) -> None:
    """R000-24: hooks see the moves, and one that refuses leaves the job as it was."""
    app, seen = App(Settings(database_url=store_url)), list[str]()
    ext = Extension("ledger", package="tests")

    @ext.job("resize", lifecycle="images")
    async def resize() -> None: ...

    @ext.guard("fail", "cancel", job_type="resize")
    async def allow(_tx: Tx, request: MoveRequest) -> None:
        if request.job.tags:
            raise Refused("keep it")

    @ext.effect("claim", "fail", job_type="resize")
    async def book(_tx: Tx, verb: str, job: Job) -> None:
        seen.append(f"{verb} {job.state}")

    app.include(ext)
    async with serving(store_url, app=app) as served:
        engine, worker = served.engine, (await served.engine.workers.register()).id
        await engine.create(NewJob(type="n"))
        [lease] = await engine.claim(worker, types=["n"])
        kept, ended = await image(served, tags=["keep"]), await image(served)
        with pytest.raises(Refused):
            await engine.withdraw(worker, Withdrawal(id=lease.id, token=lease.token, target=kept))
        seen.clear()
        await engine.withdraw(worker, Withdrawal(id=lease.id, token=lease.token, target=ended))
        assert (await engine.reads.get(kept)).state is State.QUEUED
        assert seen == ["claim running", "fail dead"]

        kept, ended = await image(served, tags=["keep"]), await image(served)
        claimed = {each.id: each for each in await engine.claim(worker, types=["resize"], limit=3)}
        with pytest.raises(Refused):
            await engine.withdraw(worker, Withdrawal(id=lease.id, token=lease.token, target=kept))
        assert (await engine.reads.get(kept)).cancel_requested_at is None
        seen.clear()
        assert (await engine.withdraw(worker, Withdrawal(id=lease.id, token=lease.token, target=ended))).asked
        await engine.release(worker, ended, claimed[ended].token)
        assert seen == ["fail dead"]
    await app.close()


async def test_creating_a_control_job_requires_the_cancel_scope(store_url: str, served: Served) -> None:
    key = await served.engine.keys.create(NewKey(tenant="default", scopes=[Scope.JOBS_CREATE]))
    body = {"jobType": "system.cancel", "payload": {"job": UNKNOWN_ID}}
    alone = await served.http.post("/jobs", json=body, headers=bearer(key.text))
    batch = await served.http.post("/jobs/batch", json={"jobs": [body]}, headers=bearer(key.text))
    assert (alone.status_code, batch.status_code) == (403, 403)


async def test_a_worker_over_http_withdraws_for_the_job_that_it_holds(served: Served) -> None:
    """R000-32: with the token of its own lease, in the queues of its key."""
    waits, elsewhere = await failed_once(served), await image(served, queue="elsewhere")
    mine = await served.register(name="w", queues=["default", "control"])
    wish = (await served.engine.create(NewJob(type="system.cancel", payload={"job": waits}))).id
    headers = bearer(mine["apiKey"])
    claimed = await served.http.post("/api/worker/claim", json={"jobTypes": ["system.cancel"]}, headers=headers)
    [job] = claimed.json()["jobs"]
    held = {"jobId": job["jobId"], "leaseToken": job["leaseToken"]}

    async def withdraw(**body: Any) -> Any:
        return await served.http.post("/api/worker/withdraw", json={**held, **body}, headers=headers)

    assert (await withdraw(targetId=waits, leaseToken=UNKNOWN_ID)).status_code == 409
    assert (await withdraw(targetId=elsewhere)).json()["code"] == "queue_not_allowed"
    assert (await withdraw(targetId=UNKNOWN_ID)).status_code == 404
    for _ in range(2):  # a repeat changes nothing
        answer = (await withdraw(targetId=waits, reason="unwanted")).json()
        assert answer == {"jobId": waits, "status": "FAILED", "state": "failed", "asked": False}
    assert (await served.engine.reads.get(waits)).reason == "unwanted"
    assert wish == job["jobId"]


async def test_a_lost_lease_withdraws_nothing(served: Served) -> None:
    engine, made = served.engine, await image(served)
    first, second = [(await engine.workers.register()).id for _ in range(2)]
    await engine.create(NewJob(type="n"))
    [lease] = await engine.claim(first, types=["n"])
    asked = Withdrawal(id=lease.id, token=lease.token, target=made)
    with pytest.raises(LeaseLost):
        await engine.withdraw(second, asked)
    await engine.release(first, lease.id, lease.token)
    with pytest.raises(LeaseLost):
        await engine.withdraw(first, asked)
    assert (await engine.reads.get(made)).state is State.QUEUED
