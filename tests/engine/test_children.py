"""A job that waits for its child jobs holds no slot, and continues when all of them have ended."""

from collections.abc import Awaitable, Callable

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.maintenance.prune import Retention
from holdfast.model import Lease, NewJob
from holdfast.model.reports import Rejection, Release
from holdfast.store import q
from tests.engine.steps import run, sweep


async def parent_of(engine: Engine, worker: str, children: int) -> tuple[Lease, list[str]]:
    parent = await run(engine, worker, type="parent")
    made = [await engine.create(NewJob(type="child", parent_id=parent.id, max_attempts=1)) for _ in range(children)]
    return parent, [one.id for one in made]


async def wait(engine: Engine, worker: str, parent: Lease) -> None:
    await engine.release_many(worker, [Release(parent.id, parent.token, 0, True, children=True)])


async def claimed(engine: Engine, worker: str, job_type: str = "parent") -> list[str]:
    return [lease.id for lease in await engine.claim(worker, limit=10, types=[job_type])]


async def test_a_waiting_parent_becomes_claimable_when_its_last_child_ends(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R002-48: a job that goes on with what its child jobs have made."""
    parent, children = await parent_of(engine, worker, 2)
    stranger = await engine.create(NewJob(type="stranger"))
    await wait(engine, worker, parent)
    assert (await engine.reads.get(parent.id)).reason == "waiting_for_children"
    for _ in children:
        assert await claimed(engine, worker) == []
        clause = (await engine.reads.why(parent.id))[-1]
        assert (clause.name, clause.holds) == ("children", False)
        [lease] = await engine.claim(worker, types=["child"])
        await engine.complete(worker, lease.id, lease.token)
        clock.advance(0.1)  # a look has put off the next one by seconds: the end of a child calls for one now
    assert "all its child jobs have ended" in (await engine.reads.why(parent.id))[-1].says
    assert await claimed(engine, worker) == [parent.id]
    assert [job.id for job in await engine.reads.children(parent.id)] == children
    assert await engine.reads.children(stranger.id) == []
    assert (await engine.reads.get(parent.id)).attempt == 1


async def test_a_parent_whose_children_have_all_ended_is_claimable_immediately(engine: Engine, worker: str) -> None:
    """The children may have ended before the parent began to wait."""
    parent, [child] = await parent_of(engine, worker, 1)
    await engine.cancel(child)
    await wait(engine, worker, parent)
    assert await claimed(engine, worker) == [parent.id]


async def dead(engine: Engine, worker: str, child: str, clock: MovableClock) -> None:
    [lease] = await engine.claim(worker, types=["child"])
    await engine.fail(worker, lease.id, lease.token, "boom")


async def canceled(engine: Engine, worker: str, child: str, clock: MovableClock) -> None:
    await engine.cancel(child)


async def rejected(engine: Engine, worker: str, child: str, clock: MovableClock) -> None:
    await engine.reject_queued(Rejection(id=child, token="", code="NO"))


async def lost(engine: Engine, worker: str, child: str, clock: MovableClock) -> None:
    await engine.claim(worker, types=["child"])
    await sweep(engine, clock, 40)


async def pruned(engine: Engine, worker: str, child: str, clock: MovableClock) -> None:
    await engine.cancel(child)
    clock.advance(10**7)
    assert await engine.maintenance.prune(Retention()) == 1


@pytest.mark.parametrize("end", [dead, canceled, rejected, lost, pruned], ids=lambda end: end.__name__)
async def test_a_parent_becomes_claimable_whichever_way_its_child_ends(
    engine: Engine,
    worker: str,
    clock: MovableClock,
    end: Callable[[Engine, str, str, MovableClock], Awaitable[None]],
) -> None:
    parent, [child] = await parent_of(engine, worker, 1)
    await wait(engine, worker, parent)
    assert await claimed(engine, worker) == []
    await end(engine, worker, child, clock)
    clock.advance(0.1)
    assert await claimed(engine, worker) == [parent.id]


async def test_a_waiting_parent_is_rechecked_every_five_seconds_if_the_trigger_missed_it(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """The trigger skips a parent that is locked: the periodic check makes up for it."""
    parent, _ = await parent_of(engine, worker, 1)
    await wait(engine, worker, parent)
    assert await claimed(engine, worker) == []
    before = await engine.reads.get(parent.id)
    clock.advance(4)
    assert await claimed(engine, worker) == []
    clock.advance(1)
    assert await claimed(engine, worker) == []
    assert (await engine.reads.get(parent.id)).run_at > before.run_at
    assert (await engine.reads.get(parent.id)).version == before.version


async def test_waiting_can_be_ended_by_cancel_and_by_wake(engine: Engine, worker: str) -> None:
    woken, _ = await parent_of(engine, worker, 1)
    await wait(engine, worker, woken)
    assert await engine.wake(woken.id) is True
    assert await claimed(engine, worker) == [woken.id]
    given_up, _ = await parent_of(engine, worker, 1)
    await wait(engine, worker, given_up)
    assert (await engine.cancel(given_up.id)).canceled


async def test_a_snoozed_parent_does_not_wait_for_its_children(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """A snoozed parent waits for its time, whatever its children do."""
    parent, [child] = await parent_of(engine, worker, 1)
    await engine.release(worker, parent.id, parent.token, delay_seconds=60)
    await engine.cancel(child)
    clock.advance(30)
    assert await claimed(engine, worker) == []
    clock.advance(31)
    assert await claimed(engine, worker) == [parent.id]


@pytest.mark.parametrize("lifecycle", ["default", "generation"])
async def test_a_failure_with_code_waiting_for_children_is_retried_after_its_backoff(
    engine: Engine, worker: str, clock: MovableClock, lifecycle: str
) -> None:
    parent = await run(engine, worker, type="parent", lifecycle=lifecycle)
    child = await engine.create(NewJob(type="child", parent_id=parent.id))
    await engine.create(NewJob(type="child", parent_id=parent.id))
    await engine.fail(worker, parent.id, parent.token, "waiting_for_children", retry_after_seconds=60)
    assert "children" not in [clause.name for clause in await engine.reads.why(parent.id)]
    await engine.cancel(child.id)
    clock.advance(50)
    assert await claimed(engine, worker) == []
    clock.advance(11)
    assert await claimed(engine, worker) == [parent.id]


async def test_mark_due_parents_checks_only_parents_that_are_waiting_and_due(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """Once: what may be claimed is not looked at again. Not at other jobs that wait for their time, whose own sweep
    passes over parents."""

    async def found() -> list[str]:
        rows = await engine.store.write(lambda tx: tx.all(q.mark_due_parents, limit=9, pause=60.0))
        return [row["id"] for row in rows]

    waits, [child] = await parent_of(engine, worker, 1)
    ready, _ = await parent_of(engine, worker, 0)
    delayed = await engine.create(NewJob(type="delayed", delay_seconds=1))
    clock.advance(1)
    for parent in (waits, ready):
        await wait(engine, worker, parent)
    assert sorted(await found()) == sorted([waits.id, ready.id])
    assert await found() == []
    clock.advance(61)
    due = await engine.store.write(lambda tx: tx.all(q.mark_due_jobs, parked="waiting", limit=9))
    assert [row["id"] for row in due] == [delayed.id]
    assert await found() == [waits.id]
    other, [first, second] = await parent_of(engine, worker, 2)
    await wait(engine, worker, other)
    assert await found() == [other.id]
    await engine.cancel(child)  # its own parent is looked at, no other
    assert await found() == [waits.id]
    assert await found() == []
    await engine.cancel(first)
    looked_at = (await engine.reads.get(other.id)).run_at
    clock.advance(1)
    await engine.cancel(second)
    assert (await engine.reads.get(other.id)).run_at == looked_at, "the first end has called for a look already"
