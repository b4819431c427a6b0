"""`polls`: the query of an idle worker, and the queries of the processes that monitor workers."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, NotFound
from holdfast.model import NewJob
from holdfast.model.key import Kind, NewKey
from holdfast.model.reports import HeldLease
from holdfast.store import q
from holdfast.store.queries import Query
from tests.engine.steps import UNKNOWN_ID, held, run

# -- an idle worker ---------------------------------------------------------------------------------------------------


async def test_a_poll_of_an_empty_queue_reports_nothing(engine: Engine, worker: str) -> None:
    seen = await engine.polls.poll(worker)
    assert (seen.any, seen.due, seen.ripe, seen.lost, seen.next_in) == (False, False, False, False, None)
    assert seen.enabled


async def test_a_poll_reports_a_due_job_until_it_is_claimed(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="echo"))
    seen = await engine.polls.poll(worker)
    assert seen.due
    assert seen.any
    await engine.claim(worker)
    assert not (await engine.polls.poll(worker)).any


async def test_a_poll_reports_only_the_job_types_asked_for(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="mine"))
    await engine.claim(worker)
    await engine.create(NewJob(type="theirs"))
    assert not (await engine.polls.poll(worker, types=["mine"])).due
    assert (await engine.polls.poll(worker, types=["theirs"])).due


async def test_a_poll_reports_the_time_of_the_next_delayed_job_and_then_that_it_is_due(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    for seconds in (50, 5, 20):
        await engine.create(NewJob(type="later", delay_seconds=seconds))
    await run(engine, worker)
    seen = await engine.polls.poll(worker)
    assert (seen.next_in, seen.ripe, seen.any) == (5, False, False)
    clock.advance(4)
    assert (await engine.polls.poll(worker)).next_in == 1
    clock.advance(2)
    seen = await engine.polls.poll(worker)
    assert (seen.next_in, seen.ripe, seen.any) == (0, True, True)
    assert len(await engine.claim(worker)) == 1
    assert (await engine.polls.poll(worker)).next_in == 14


async def test_a_poll_reports_an_expired_lease_in_its_queues(engine: Engine, worker: str, clock: MovableClock) -> None:
    await run(engine, worker, queue="a")
    clock.advance(29)
    assert not (await engine.polls.poll(worker)).lost
    clock.advance(1)
    lost = [(await engine.polls.poll(worker, queues)).lost for queues in (None, ["b", "a"], ["b"])]
    assert lost == [True, True, False]


async def test_a_poll_tells_a_disabled_worker_that_it_is_disabled(engine: Engine, worker: str) -> None:
    other = (await engine.workers.register()).id
    await engine.create(NewJob(type="echo"))
    await engine.workers.disable(worker)
    seen = await engine.polls.poll(worker)
    assert (seen.enabled, seen.due, seen.any) == (False, True, False)
    assert (await engine.polls.poll(other)).any


async def test_a_poll_of_an_unregistered_worker_is_not_found(engine: Engine) -> None:
    with pytest.raises(NotFound, match="register it before it claims") as caught:
        await engine.polls.poll(UNKNOWN_ID)
    assert caught.value.code == "worker_not_found"


@pytest.mark.parametrize(
    ("job", "asked"),
    [
        ({"queue": "other"}, {"queues": ["mine"]}),
        ({"type": "other"}, {"types": ["mine"]}),
        ({"requires": ["gpu"]}, {}),
        ({"tenant": "other"}, {}),
        ({"queue": "paused"}, {}),
    ],
    ids=["queue", "type", "capability", "tenant", "paused"],
)
async def test_a_poll_ignores_jobs_that_the_worker_may_not_claim(
    engine: Engine, job: dict[str, Any], asked: dict[str, Any]
) -> None:
    worker = (await engine.workers.register(tenants=["default"])).id
    able = (await engine.workers.register(capabilities={"gpu": True})).id
    await engine.queues.pause("paused")
    await engine.create(NewJob(**{"type": "echo", **job}))
    assert not (await engine.polls.poll(worker, **asked)).due
    assert await engine.claim(worker, **asked) == []
    await engine.queues.resume("paused")
    assert (await engine.polls.poll(able)).due


def test_claimable_and_open_lanes_have_the_same_conditions() -> None:
    """One query cannot use the other, so each contains the same marker."""
    for query in (q.claimable, q.open_lanes, q.open_key_lanes):
        assert "{open to worker}" in query.text


async def test_a_poll_is_one_query(engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = engine.store.transaction_class
    original, asked = transaction.all, list[str]()

    async def noted(tx: Any, query: Query, **params: Any) -> Any:
        asked.append(query.name)
        return await original(tx, query, **params)

    monkeypatch.setattr(transaction, "all", noted)
    await engine.polls.poll(worker, ["a", "b"], ["c"])
    assert asked == ["claimable"]


@pytest.mark.parametrize("asked", [("no uuid",), (UNKNOWN_ID, "a"), (UNKNOWN_ID, None, [7])])
async def test_a_poll_with_invalid_arguments_is_rejected(engine: Engine, asked: tuple[Any, ...]) -> None:
    with pytest.raises(HoldfastError) as caught:
        await engine.polls.poll(*asked)
    assert caught.value.code.startswith("invalid_")


# -- monitoring workers -----------------------------------------------------------------------------------------------


async def test_instances_lists_the_processes_that_hold_jobs(engine: Engine, worker: str) -> None:
    assert await engine.polls.instances() == []
    first = await run(engine, worker, instance="a")
    for instance in ("a", "b", None):
        await run(engine, worker, instance=instance)
    assert sorted(await engine.polls.instances()) == ["a", "b"]
    last = await run(engine, worker, instance="c")
    await engine.complete(worker, last.id, last.token)
    await engine.complete(worker, first.id, first.token)
    assert sorted(await engine.polls.instances()) == ["a", "b"]
    assert sorted(await engine.polls.instances(["b", "c"])) == ["b"]
    assert {"a", "b"} <= set(await engine.polls.claiming_instances()) <= {"a", "b", "c"}


async def test_claiming_instances_and_instances_leave_out_the_processes_of_workers_with_a_key(
    engine: Engine, worker: str
) -> None:
    """They use HTTP, choose these names themselves and hold no lock that shows whether they live."""
    remote = (await engine.workers.register()).id
    await engine.keys.create(NewKey(kind=Kind.WORKER, worker_id=remote))
    await run(engine, worker, instance="here")
    await run(engine, remote, instance="there")
    assert await engine.polls.claiming_instances() == await engine.polls.instances() == ["here"]


async def test_held_by_lists_the_leases_of_one_process(engine: Engine, worker: str) -> None:
    """Called when the answer to a claim was lost: all leases of this process, and no others."""
    other = (await engine.workers.register()).id
    mine = [await run(engine, worker, instance=instance) for instance in ("a", "a.live")]
    await run(engine, worker, instance="b")
    await run(engine, other, instance="a")
    done = await run(engine, worker, instance="a")
    await engine.complete(worker, done.id, done.token)
    assert await engine.polls.held_by(worker, "a", "a.live") == [held(lease) for lease in mine]
    assert await engine.polls.held_by(worker, "a") == [held(mine[0])]


async def test_still_held_lists_only_jobs_that_run(engine: Engine, worker: str) -> None:
    """One that has ended keeps the worker of its last lease."""
    done, fine = [await run(engine, worker) for _ in range(2)]
    await engine.complete(worker, done.id, done.token)
    asked = {"ids": [done.id, fine.id], "worker": worker}
    rows = await engine.store.read(lambda tx: tx.all(q.still_held, **asked))
    assert [row["id"] for row in rows] == [fine.id]


async def test_to_stop_lists_canceled_and_lost_leases(engine: Engine, worker: str, clock: MovableClock) -> None:
    """Canceled, finished, reaped, of another worker, unknown, malformed; a valid lease is not listed."""
    fine, canceled, done, lost = [await run(engine, worker, instance=name) for name in ("a", "a", "a", "b")]
    other = (await engine.workers.register()).id
    others = await run(engine, other)
    await engine.cancel(canceled.id)
    await engine.complete(worker, done.id, done.token)
    await engine.maintenance.reap(gone=["b"])
    [again] = await engine.claim(worker, types=[lost.type])
    assert again.token != lost.token
    bad = [held(lease) for lease in (canceled, done, lost, others)]
    bad += [HeldLease(fine.id, UNKNOWN_ID), HeldLease(UNKNOWN_ID, fine.token), HeldLease("nonsense", "nonsense")]
    assert await engine.polls.to_stop(worker, [held(fine), *bad, held(again)]) == bad
    assert await engine.polls.to_stop(worker, []) == []
