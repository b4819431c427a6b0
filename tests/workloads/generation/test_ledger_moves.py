"""Credits move with a job whoever moves it, and nobody moves it without them: C-40, H13, R004-12, R004-14, R004-25."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.engine.admin.bulk import BulkCancel, BulkRedrive, BulkWake, carry_out
from holdfast.errors import HoldfastError
from holdfast.lifecycle import State
from holdfast.model import Lease, NewJob
from holdfast.model.reports import Complete, Fail, Rejection, Release, Withdrawal
from holdfast.store.migrate import migrate
from holdfast.workloads.generation import ext
from holdfast.workloads.generation.hooks import RUN
from holdfast.workloads.generation.service import app
from tests.cli.processes import holdfast
from tests.server.http_worker import hand, held
from tests.server.steps import ADMIN, serving
from tests.worker.real_processes.harness import ROOT
from tests.workloads.generation import ledger_engines as on

SHOP = "tests.workloads.generation.ledger_shop:app"
RESERVED, COMMITTED = {"reserve": 2}, {"reserve": 2, "commit": 2}
RELEASED, FORFEITED = {"reserve": 2, "release": 2}, {"reserve": 2, "forfeit": 2}


@dataclass
class Scene:
    """A database, an engine with the service and one without it, and a worker. Generations are for two images."""

    url: str
    clock: MovableClock
    with_it: Engine
    without_it: Engine
    worker: str

    async def queued(self, **job: Any) -> str:
        return (await on.create(self.with_it, count=2, **job)).id

    async def running(self, **job: Any) -> Lease:
        return await on.claimed(self.with_it, self.worker, count=2, **job)

    async def retrying(self) -> str:
        lease = await self.running()
        await self.with_it.fail(self.worker, lease.id, lease.token, "provider_failed", retry_after_seconds=3600)
        return lease.id

    async def dead(self) -> str:
        lease = await self.running()
        await self.with_it.fail(self.worker, lease.id, lease.token, "provider_failed", permanent=True)
        return lease.id

    async def state(self, job_id: str) -> State:
        return (await self.with_it.reads.get(job_id)).state

    async def is_now(self, job_id: str, state: State, entries: dict[str, int]) -> None:
        assert (await self.state(job_id), await on.entries_of(self.with_it, job_id)) == (state, entries)
        await on.check_books(self.with_it, "at the end", cost=1)


@pytest.fixture
async def scene(store_url: str, clock: MovableClock) -> AsyncIterator[Scene]:
    await migrate(store_url, [ext])
    with on.generation_service(store_url, clock):
        async with on.opened(store_url, clock) as one, on.opened(store_url, clock, has_it=False) as other:
            yield Scene(store_url, clock, one, other, await on.worker(one))


# -- engines -------------------------------------------------------------------------------------------------------

# What an engine does with a job that is prepared here.
Move = Callable[[Engine], Awaitable[Any]]
Prepared = tuple[str, Move, State, dict[str, int]]


async def complete_without_images(scene: Scene) -> Prepared:
    lease = await scene.running()
    done = Complete(lease.id, lease.token, {"assets": ["none"]})
    return lease.id, lambda engine: engine.complete_many(scene.worker, [done]), State.SUCCEEDED, RELEASED


async def publish(scene: Scene) -> Prepared:
    lease = await scene.running()
    return lease.id, lambda engine: on.finish(engine, scene.worker, lease, 2), State.SUCCEEDED, COMMITTED


async def fail_for_good(scene: Scene) -> Prepared:
    lease = await scene.running()
    failed = Fail(id=lease.id, token=lease.token, code="E", permanent=True)
    return lease.id, lambda engine: engine.fail_many(scene.worker, [failed]), State.DEAD, RELEASED


async def fail_the_last_attempt(scene: Scene) -> Prepared:
    lease = await scene.running(max_attempts=1)
    failed = Fail(id=lease.id, token=lease.token, code="provider_unavailable")
    return lease.id, lambda engine: engine.fail_many(scene.worker, [failed]), State.DEAD, RELEASED


async def fail_and_retry(scene: Scene) -> Prepared:
    lease = await scene.running()
    failed = Fail(id=lease.id, token=lease.token, code="provider_unavailable")
    return lease.id, lambda engine: engine.fail_many(scene.worker, [failed]), State.RETRYING, RESERVED


async def reject(scene: Scene) -> Prepared:
    lease = await scene.running()
    verdict = Rejection(id=lease.id, token=lease.token, code="image_rejected")
    return lease.id, lambda engine: engine.reject_many(scene.worker, [verdict]), State.REJECTED, FORFEITED


async def reject_queued(scene: Scene) -> Prepared:
    job = await scene.queued()
    verdict = Rejection(id=job, token="", code="prompt_rejected")
    return job, lambda engine: engine.reject_queued(verdict), State.REJECTED, FORFEITED


async def release(scene: Scene) -> Prepared:
    lease = await scene.running()
    given_back = Release(lease.id, lease.token)
    return lease.id, lambda engine: engine.release_many(scene.worker, [given_back]), State.QUEUED, RESERVED


async def snooze(scene: Scene) -> Prepared:
    lease = await scene.running()
    snoozed = Release(lease.id, lease.token, delay_seconds=60, snoozed=True)
    return lease.id, lambda engine: engine.release_many(scene.worker, [snoozed]), State.QUEUED, RESERVED


async def release_when_canceled(scene: Scene) -> Prepared:
    lease = await scene.running()
    await scene.with_it.cancel(lease.id)
    given_back = Release(lease.id, lease.token)
    return lease.id, lambda engine: engine.release_many(scene.worker, [given_back]), State.CANCELED, RELEASED


async def fail_when_canceled(scene: Scene) -> Prepared:
    lease = await scene.running()
    await scene.with_it.cancel(lease.id)
    failed = Fail(id=lease.id, token=lease.token, code="canceled")
    return lease.id, lambda engine: engine.fail_many(scene.worker, [failed]), State.CANCELED, RELEASED


async def reap_the_last_attempt(scene: Scene) -> Prepared:
    lease = await scene.running(max_attempts=1)
    return lease.id, lambda engine: engine.maintenance.reap(gone=["here"]), State.DEAD, RELEASED


async def reap_an_expired_lease(scene: Scene) -> Prepared:
    lease = await scene.running()

    async def sweep(engine: Engine) -> None:
        for _ in range(10):  # as in production: after a gap between sweeps, a silent worker is given time
            scene.clock.advance(10)
            await engine.maintenance.reap()

    return lease.id, sweep, State.RETRYING, RESERVED


async def reap_as_poison(scene: Scene) -> Prepared:
    lease = await scene.running(policy={"max_lost": 1})
    return lease.id, lambda engine: engine.maintenance.reap(gone=["here"]), State.DEAD, RELEASED


async def reap_after_the_grace_of_a_cancel(scene: Scene) -> Prepared:
    lease = await scene.running()
    await scene.with_it.cancel(lease.id)
    return lease.id, lambda engine: engine.maintenance.reap(gone=["here"]), State.CANCELED, RELEASED


async def cancel_a_queued_job(scene: Scene) -> Prepared:
    job = await scene.queued()
    return job, lambda engine: engine.cancel(job), State.CANCELED, RELEASED


async def cancel_a_retry(scene: Scene) -> Prepared:
    job = await scene.retrying()
    return job, lambda engine: engine.cancel(job), State.CANCELED, RELEASED


async def cancel_in_bulk(scene: Scene) -> Prepared:
    job = await scene.retrying()
    return job, lambda engine: carry_out(engine, BulkCancel(), [job]), State.CANCELED, RELEASED


async def discard_a_retry(scene: Scene) -> Prepared:
    job = await scene.retrying()
    return job, lambda engine: engine.discard(job), State.DEAD, RELEASED


async def withdraw_by_a_control_job(scene: Scene) -> Prepared:
    job = await scene.retrying()
    await scene.with_it.create(NewJob(type="control"))
    [control] = await scene.with_it.claim(scene.worker, types=["control"])
    asked = Withdrawal(id=control.id, token=control.token, target=job, reason="canceled")
    return job, lambda engine: engine.withdraw(scene.worker, asked), State.CANCELED, RELEASED


async def wake_a_retry(scene: Scene) -> Prepared:
    job = await scene.retrying()
    return job, lambda engine: engine.wake(job), State.QUEUED, RESERVED


async def wake_in_bulk(scene: Scene) -> Prepared:
    job = await scene.retrying()
    return job, lambda engine: carry_out(engine, BulkWake(), [job]), State.QUEUED, RESERVED


async def requeue_a_due_retry(scene: Scene) -> Prepared:
    job = await scene.retrying()
    scene.clock.advance(4000)
    return job, lambda engine: engine.maintenance.requeue_due(), State.QUEUED, RESERVED


async def claim(scene: Scene) -> Prepared:
    job = await scene.queued()
    return job, lambda engine: engine.claim(scene.worker), State.RUNNING, RESERVED


MOVES = [
    complete_without_images,
    publish,
    fail_for_good,
    fail_the_last_attempt,
    fail_and_retry,
    reject,
    reject_queued,
    release,
    snooze,
    release_when_canceled,
    fail_when_canceled,
    reap_the_last_attempt,
    reap_an_expired_lease,
    reap_as_poison,
    reap_after_the_grace_of_a_cancel,
    cancel_a_queued_job,
    cancel_a_retry,
    cancel_in_bulk,
    discard_a_retry,
    withdraw_by_a_control_job,
    wake_a_retry,
    wake_in_bulk,
    requeue_a_due_retry,
    claim,
]


@pytest.mark.parametrize("prepare", MOVES)
async def test_credits_move_with_the_job(scene: Scene, prepare: Callable[[Scene], Awaitable[Prepared]]) -> None:
    job, move, state, entries = await prepare(scene)
    await move(scene.with_it)
    await scene.is_now(job, state, entries)


@pytest.mark.parametrize("prepare", MOVES)
async def test_a_process_without_the_service_does_not_move_the_job(
    scene: Scene, prepare: Callable[[Scene], Awaitable[Prepared]]
) -> None:
    """It refuses, or leaves the job alone; then a process with the service moves it."""
    job, move, state, entries = await prepare(scene)
    before = await scene.state(job), await on.entries_of(scene.with_it, job)
    try:
        answers = await move(scene.without_it)
        for answer in answers if isinstance(answers, list) else []:
            assert isinstance(answer, HoldfastError) or getattr(answer, "refusal", None), answer
    except HoldfastError:
        pass
    await scene.is_now(job, *before)
    await move(scene.with_it)
    await scene.is_now(job, state, entries)


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_redrive_reserves_again_and_needs_the_service(scene: Scene, bulk: bool) -> None:
    job = await scene.dead()

    async def redrive(engine: Engine) -> Any:
        if bulk:
            [outcome] = await carry_out(engine, BulkRedrive(), [job])
            return outcome.refusal or outcome.new_id
        try:
            return (await engine.redrive(job)).id
        except HoldfastError as refusal:
            return refusal

    assert (await redrive(scene.without_it)).code == "extension_missing"
    again = await redrive(scene.with_it)
    await scene.is_now(again, State.QUEUED, RESERVED)
    await scene.is_now(job, State.DEAD, RELEASED)


async def test_a_redrive_without_enough_credits_is_refused(scene: Scene) -> None:
    lease = await scene.running()
    await scene.with_it.reject(scene.worker, lease.id, lease.token, "image_rejected")
    await scene.with_it.create_many([on.generation(count=4) for _ in range(24)])
    await on.create(scene.with_it)
    with pytest.raises(HoldfastError) as refused:
        await scene.with_it.redrive(lease.id)
    assert refused.value.code == "insufficient_credits"
    assert await on.has(scene.with_it) == (98, 97)
    await scene.is_now(lease.id, State.REJECTED, FORFEITED)


async def test_a_process_without_the_service_creates_no_such_job(scene: Scene) -> None:
    await scene.queued()
    with pytest.raises(HoldfastError) as refused:
        await on.create(scene.without_it)
    assert refused.value.code == "extension_missing"
    assert await on.has(scene.with_it) == (100, 2)


async def test_a_claim_rejects_what_is_not_allowed_any_more(scene: Scene, tmp_path: Path, clock: MovableClock) -> None:
    """R004-2: the lists have changed since the request was accepted."""
    job = await scene.queued(prompt="a heron at dawn")
    words = tmp_path / "blocked"
    words.write_text("heron\n")
    with on.generation_service(scene.url, clock, blocklist_file=str(words)):
        assert await scene.without_it.claim(scene.worker) == []
        await scene.is_now(job, State.QUEUED, RESERVED)
        assert await scene.with_it.claim(scene.worker) == []
    await scene.is_now(job, State.REJECTED, FORFEITED)


# -- servers and other processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "report", "state", "entries"),
    [
        ("complete", {"result": {"assets": ["none"]}}, State.SUCCEEDED, RELEASED),
        ("fail", {"errorCode": "provider_failed", "message": "x", "permanent": True}, State.DEAD, RELEASED),
        ("fail", {"errorCode": "provider_failed", "message": "x"}, State.RETRYING, RESERVED),
        ("reject", {"errorCode": "image_rejected", "message": "x"}, State.REJECTED, FORFEITED),
    ],
)
async def test_a_worker_over_http_moves_credits_through_a_server_with_the_service(
    scene: Scene, verb: str, report: dict[str, Any], state: State, entries: dict[str, int]
) -> None:
    """What it says of images charges nobody: assets are what counts."""
    job = await scene.queued()
    async with serving(scene.url, clock=scene.clock) as plain, serving(scene.url, clock=scene.clock, app=app) as server:
        remote = await hand(server, name="remote")
        assert await remote.elsewhere(plain).claim(jobTypes=[RUN]) == []
        lease = held(await remote.claim_one(jobTypes=[RUN]))
        refused = await remote.elsewhere(plain).say(verb, **lease, **report)
        assert (refused.status_code, refused.json()["code"]) == (409, "extension_missing")
        await scene.is_now(job, State.RUNNING, RESERVED)
        await remote.told(verb, **lease, **report)
    await scene.is_now(job, state, entries)


async def test_an_operator_moves_credits_through_a_server_with_the_service(scene: Scene) -> None:
    ended, canceled = await scene.dead(), await scene.queued()
    paths = (f"/api/admin/jobs/{canceled}/cancel", f"/api/admin/jobs/{ended}/redrive")
    async with serving(scene.url, clock=scene.clock) as plain, serving(scene.url, clock=scene.clock, app=app) as server:
        for path in paths:
            answer = await plain.http.post(path, json={}, headers=ADMIN)
            assert (answer.status_code, answer.json()["code"]) == (409, "extension_missing")
        await scene.is_now(canceled, State.QUEUED, RESERVED)
        for path in paths:
            answer = await server.http.post(path, json={}, headers=ADMIN)
            assert answer.status_code in (200, 201, 202), answer.text
    await scene.is_now(canceled, State.CANCELED, RELEASED)
    assert await on.has(scene.with_it) == (100, 2)


async def test_a_command_with_another_app_that_includes_the_service_moves_credits(store_url: str) -> None:
    """Processes in the time of this machine, so no clock of a test."""

    async def command(*arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(holdfast, *arguments, folder=ROOT, url=store_url)
        return done.returncode, done.stdout + done.stderr

    await migrate(store_url, [ext])
    with on.generation_service(store_url, Clock()):
        async with on.opened(store_url, Clock()) as engine:
            scene = Scene(store_url, MovableClock(), engine, engine, await on.worker(engine))
            ended, waiting = await scene.dead(), await scene.queued()
            for verb, job in (("cancel", waiting), ("redrive", ended)):
                code, told = await command("jobs", verb, job)
                assert code != 0
                assert "extension generation" in told, told
            await scene.is_now(waiting, State.QUEUED, RESERVED)
            for verb, job in (("cancel", waiting), ("redrive", ended)):
                code, told = await command("jobs", verb, job, "--app", SHOP)
                assert code == 0, told
            await scene.is_now(waiting, State.CANCELED, RELEASED)
            [again] = [job.id for job in (await engine.reads.page()).jobs if job.redrive_of == ended]
            await scene.is_now(again, State.QUEUED, RESERVED)
