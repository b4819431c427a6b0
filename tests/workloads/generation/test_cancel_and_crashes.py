"""Generations that are canceled, lose their lease or their worker: each ends once, is charged once, and leaves nothing
behind."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.lifecycle import State
from holdfast.model.reports import HeldLease
from holdfast.storage.staging import Staged
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.workloads.generation import jobs
from holdfast.workloads.generation.execution import _Execution
from tests.worker.in_process import AtWork, until
from tests.workloads.generation.provider_stub import Exchange, image_base64, status
from tests.workloads.generation.running import DAY, Running, running, stored, stub
from tests.workloads.generation.steps import ON_SQLITE

__all__ = ["running", "stub"]


class Gate:
    """An order that waits for an answer."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, exchange: Exchange) -> None:
        exchange.stub.pay(exchange.key, exchange.request.body)
        self.reached.set()
        self.open.wait(60)
        image_base64(exchange)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


async def cancel(running: Running, accepted: dict[str, Any]) -> int:
    answer = await running.service.ask("POST", f"/generations/{accepted['generationId']}/cancel")
    return answer.status_code


async def is_canceled(running: Running, accepted: dict[str, Any], credits_reserved: int) -> None:
    generation = await running.service.generation(accepted["generationId"])
    assert (generation["status"], generation["assets"], generation["creditsCharged"]) == ("dead_letter", [], 0)
    assert generation["error"] == {"code": "canceled", "message": "canceled"}
    assert (await running.job(accepted)).state is State.CANCELED
    reserved = [("reserve", credits_reserved), ("release", credits_reserved)]
    assert await running.service.statement() == [("grant", 100), *reserved]
    await running.is_clean()
    assert await stored() == []


async def heard_of_cancel(running: Running, at_work: AtWork, accepted: dict[str, Any]) -> None:
    token = str((await running.job(accepted)).lease_token)
    at_work.worker.on_heartbeat(HeartbeatResult(cancel=[HeldLease(accepted["jobId"], token)]))


async def test_a_running_generation_is_interrupted(running: Running, gate: Gate) -> None:
    running.stub.creates = [gate]
    accepted = await running.service.accepted()
    async with running.service.working() as at_work:
        await until(gate.reached.is_set)
        assert await cancel(running, accepted) == 202
        assert (await running.service.generation(accepted["generationId"]))["status"] == "running"
        await heard_of_cancel(running, at_work, accepted)
        await running.service.ended(accepted["generationId"])
    gate.open.set()
    await is_canceled(running, accepted, 1)
    assert await cancel(running, accepted) == 202


@pytest.mark.parametrize("swept", ["meanwhile", "later"])
async def test_images_that_are_stored_before_a_cancellation_are_deleted(
    running: Running, gate: Gate, swept: str
) -> None:
    """Also if a sweep has seen them while the job ran: what it kept is looked at again."""

    def some(exchange: Exchange) -> None:
        (gate if exchange.key.endswith("-2") else image_base64)(exchange)

    running.stub.otherwise_create = some
    accepted = await running.service.accepted(count=3)
    async with running.service.working() as at_work:
        await until(lambda: len(running.service.files("originals/")) == 2 and gate.reached.is_set())
        for _ in range(2 if swept == "meanwhile" else 0):
            await running.sweep()
            assert len(running.service.files("originals/")) == 2  # the job may still publish them
        await cancel(running, accepted)
        await heard_of_cancel(running, at_work, accepted)
        await running.service.ended(accepted["generationId"])
        running.service.clock.advance(2 * DAY)
    await is_canceled(running, accepted, 3)


async def test_a_generation_is_canceled_while_its_prediction_is_pending(running: Running) -> None:
    """At once, since no worker has it."""
    running.stub.progress = ["processing"]
    accepted = await running.service.accepted(provider="poll", count=2)
    async with running.service.working():
        await running.until_waiting(accepted)
        assert await cancel(running, accepted) == 202
        assert (await running.job(accepted)).final
    await is_canceled(running, accepted, 2)


@ON_SQLITE
async def test_a_generation_is_canceled_while_it_waits_for_a_retry(running: Running) -> None:
    running.stub.creates = [status(503)]
    accepted = await running.service.accepted(count=2)
    async with running.service.working():
        await running.until_waiting(accepted)
        assert await cancel(running, accepted) == 202
    await is_canceled(running, accepted, 2)


@ON_SQLITE
async def test_a_queued_generation_is_canceled(running: Running) -> None:
    accepted = await running.service.accepted()
    assert await cancel(running, accepted) == 202
    await is_canceled(running, accepted, 1)
    assert running.stub.requests == []


@ON_SQLITE
async def test_a_completed_generation_cannot_be_canceled(running: Running) -> None:
    made = await running.run()
    assert await running.service.refused("POST", f"/generations/{made['generationId']}/cancel") == (
        409,
        "already_final",
    )
    assert await running.service.credits() == (99, 0, 99)


# -- lost leases -------------------------------------------------------------------------------------------------------


class Held:
    """The first call of a method waits, the others do not."""

    def __init__(self) -> None:
        self.reached, self.open, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.calls = 0

    def around(self, method: Any) -> Any:
        async def called(*args: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls > 1:
                return await method(*args, **more)
            self.reached.set()
            try:
                await self.open.wait()
                return await method(*args, **more)
            finally:
                self.left.set()

        return called


@contextmanager
def held(patch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[Held]:
    held = Held()
    patch.setattr(owner, name, held.around(getattr(owner, name)))
    yield held
    held.open.set()


AT = {
    "before the image is stored": (Staged, "put"),
    "before the image is published": (Staged, "publish"),
    "before the commit": (_Execution, "_publish"),
}


@pytest.mark.parametrize("where", AT)
async def test_an_execution_that_lost_its_lease_publishes_nothing(
    running: Running, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = await running.service.accepted(count=1)
    engine = running.service.served.engine
    with held(monkeypatch, *AT[where]) as late:
        async with running.service.working():
            await until(late.reached.is_set)
            instance = str((await running.job(accepted)).lease_instance)
            await engine.maintenance.reap(gone=[instance])
            made = await running.finish(accepted)
            late.open.set()
            await until(late.left.is_set)
            await running.until_idle()
    await running.is_delivered(made, [f"{accepted['jobId']}-0"])
    verbs = [event.verb for event in await engine.reads.history(accepted["jobId"])]
    assert (verbs.count("complete"), verbs.count("claim")) == (1, 2)
    assert running.paid() == {f"{accepted['jobId']}-0": 1}
    assert (await running.service.statement())[1:] == [("reserve", 1), ("commit", 1)]
    assert len(await running.charges()) == 1
    assert len(await running.recorded()) == 2
    await running.is_clean()
    assert len(await stored()) == 2


@ON_SQLITE
async def test_one_image_that_lost_the_lease_stops_the_others(
    running: Running, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not go on without their job, and store nothing."""

    def some(exchange: Exchange) -> None:
        (gate if exchange.key.endswith("-1") else image_base64)(exchange)

    running.stub.otherwise_create = some
    accepted = await running.service.accepted(count=2)
    with held(monkeypatch, Staged, "publish") as late:
        async with running.service.working():
            await until(lambda: late.reached.is_set() and gate.reached.is_set())
            running.stub.otherwise_create = None
            await running.service.served.engine.maintenance.reap(
                gone=[str((await running.job(accepted)).lease_instance)]
            )
            late.open.set()
            await until(late.left.is_set)
            made = await running.finish(accepted)
            assert not [task for task in asyncio.all_tasks() if "_make" in repr(task.get_coro())]
    await running.is_delivered(made, [f"{accepted['jobId']}-{place}" for place in (0, 1)])
    await running.is_clean()
    assert len(await stored()) == 4


# -- the sweep ---------------------------------------------------------------------------------------------------------


@ON_SQLITE
async def test_the_sweep_deletes_what_is_old_only(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LEFTOVER_SECONDS", DAY)
    running.stub.otherwise_create = status(400)
    async with running.service.working():
        running.stub.creates = [image_base64]
        accepted = await running.service.accepted()
        await running.finish(accepted)
        await running.until_idle()
        before = await stored()
        await running.sweep()
        assert await stored() == before == await running.recorded()
