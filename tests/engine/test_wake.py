"""wake: a job that waits for its time can be claimed at once."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import Conflict, NotFound
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.server.live.sse import for_client
from holdfast.store import q
from tests.engine.steps import UNKNOWN_ID, run


async def test_wake_makes_a_snoozed_or_delayed_job_claimable(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    await engine.release(worker, lease.id, lease.token, delay_seconds=600)
    delayed = await engine.create(NewJob(type="delayed", delay_seconds=3600))
    other = await engine.create(NewJob(type="other", delay_seconds=3600))
    assert await engine.claim(worker, limit=5) == []
    assert [await engine.wake(lease.id), await engine.wake(delayed.id)] == [True, True]
    job = await engine.reads.get(lease.id)
    event = (await engine.reads.history(lease.id))[-1]
    assert (job.reason, event.verb, event.from_state, event.to_state) == ("woken", "wake", None, None)
    assert for_client(event, None).status == "PENDING"
    assert await engine.wake(lease.id) is True  # once more does no harm
    assert (await engine.reads.get(lease.id)).version == job.version
    assert {claimed.id for claimed in await engine.claim(worker, limit=5)} == {lease.id, delayed.id}
    assert (await engine.reads.get(other.id)).due is False


@pytest.mark.parametrize("lifecycle", ["default", "generation"])
async def test_wake_makes_a_retrying_job_claimable_before_its_backoff_ends(
    engine: Engine, worker: str, lifecycle: str
) -> None:
    lease = await run(engine, worker, lifecycle=lifecycle)
    await engine.fail(worker, lease.id, lease.token, "boom", retry_after_seconds=600)
    assert await engine.claim(worker) == []
    assert await engine.wake(lease.id) is True
    assert [claimed.id for claimed in await engine.claim(worker)] == [lease.id]


async def test_a_wake_that_comes_before_the_snooze_is_not_lost(engine: Engine, worker: str) -> None:
    lease, neighbour = await run(engine, worker), await run(engine, worker)
    assert await engine.wake(lease.id) is False
    for one in (lease, neighbour):
        await engine.release(worker, one.id, one.token, delay_seconds=600)
    assert [(await engine.reads.get(one.id)).due for one in (lease, neighbour)] == [True, False]
    [again] = await engine.claim(worker, limit=5)
    assert again.id == lease.id
    await engine.release(worker, again.id, again.token, delay_seconds=600)  # it was for the execution before
    assert await engine.claim(worker, limit=5) == []


async def test_wake_refuses_final_unaccepted_and_unknown_jobs(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    await engine.complete(worker, lease.id, lease.token)
    with pytest.raises(Conflict, match="succeeded") as refused:
        await engine.wake(lease.id)
    assert refused.value.code == "already_final"
    created = await engine.create(NewJob(type="new"), accept=False)
    with pytest.raises(Conflict, match="accepted") as refused:
        await engine.wake(created.id)
    assert refused.value.code == "not_waiting"
    other = await engine.create(NewJob(type="theirs", tenant="other", delay_seconds=60))
    for unknown, tenant in ((UNKNOWN_ID, None), ("nonsense", None), (other.id, "default")):
        with pytest.raises(NotFound):
            await engine.wake(unknown, tenant=tenant)


async def test_wake_running_and_wake_waiting_change_only_running_and_waiting_jobs(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """They change what waits, or what runs, and nothing else."""
    running = await run(engine, worker)
    queued = await engine.create(NewJob(type="queued", delay_seconds=60))
    retried = await run(engine, worker, lifecycle="generation")
    await engine.fail(worker, retried.id, retried.token, "boom", retry_after_seconds=600)
    ready = await engine.create(NewJob(type="ready"))

    async def woken(query: object, *ids: str) -> list[str]:
        params = {"actor": "api"} if query is q.wake_waiting else {}
        rows = await engine.store.write(lambda tx: tx.all(query, ids=list(ids), **params))  # type: ignore[arg-type]
        return sorted(row["id"] for row in rows)

    every = [running.id, queued.id, retried.id, ready.id]
    assert await woken(q.wake_running, *every) == [running.id]
    assert await woken(q.wake_waiting, *every) == [queued.id]
    assert (await engine.reads.get(retried.id)).state is State.RETRYING
