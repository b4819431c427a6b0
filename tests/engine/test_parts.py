"""Parts of a job: recorded as events, reopened on request, and reset between attempts as the policy says."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, Progress
from holdfast.lifecycle import State
from holdfast.model import Lease, NewJob, Part, PartStatus
from holdfast.server.api.views import job_view
from holdfast.server.live.sse import for_client
from tests.engine.steps import sweep

EACH = [
    Part(name="done", status=PartStatus.COMPLETED, percent=100, data={"n": 1}),
    Part(name="above", status=PartStatus.SKIPPED, error="above the source"),
    Part(name="begun", status=PartStatus.IN_PROGRESS, percent=40, total=10, done=4, data={"n": 2}),
    Part(name="broken", status=PartStatus.FAILED, error="no frames", data={"n": 3}),
    Part(name="later"),
]


async def report(engine: Engine, worker: str, lease: Lease, *parts: Part) -> None:
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, parts=list(parts)))


async def running(engine: Engine, worker: str, **policy: Any) -> Lease:
    await engine.create(NewJob(type="film", policy={"backoff_base_seconds": 0, **policy}))
    [lease] = await engine.claim(worker)
    return lease


async def statuses(engine: Engine, lease: Lease) -> dict[str, tuple[str, Any]]:
    return {part.name: (str(part.status), part.data) for part in await engine.reads.parts(lease.id)}


async def test_events_and_client_views_contain_parts_without_their_data(engine: Engine, worker: str) -> None:
    """R003-31..33."""
    neighbour, lease = await running(engine, worker), await running(engine, worker)
    await report(engine, worker, lease, EACH[2], EACH[1])
    assert (await engine.reads.get(neighbour.id)).version == 2  # created and claimed: of its parts nothing was said
    *_, progress, event = await engine.reads.history(lease.id)
    assert (progress.verb, event.verb, event.seq, event.worker_id) == ("progress", "parts", progress.seq + 1, worker)
    assert event.pos >= progress.pos
    assert event.data == [
        {"name": "begun", "status": "in_progress", "percent": 40.0, "total": 10, "done": 4},
        {"name": "above", "status": "skipped", "error": "above the source"},
    ]
    told = for_client(event, None).parts
    assert told is not None
    assert [(part.name, part.status, part.percent, part.total, part.done) for part in told] == [
        ("begun", "in_progress", 40.0, 10, 4),
        ("above", "skipped", None, None, None),
    ]
    [summary] = await engine.reads.summaries([(lease.id, "default")])
    assert job_view(summary).parts == told  # type: ignore[arg-type]
    job = await engine.reads.get(lease.id)
    assert (job.version, (await engine.reads.history(lease.id))[-1].seq) == (event.seq, event.seq)


async def test_a_job_without_parts_has_none(engine: Engine, worker: str) -> None:
    other, lease = await running(engine, worker), await running(engine, worker)
    await report(engine, worker, other, EACH[0])
    [summary] = await engine.reads.summaries([(lease.id, "default")])
    assert job_view(summary).parts is None  # type: ignore[arg-type]


async def test_only_a_reopened_part_loses_its_completed_status(engine: Engine, worker: str) -> None:
    """R003-81."""
    lease, other = await running(engine, worker), await running(engine, worker)
    for each in (lease, other):
        await report(engine, worker, each, EACH[0], Part(name="twin", status=PartStatus.COMPLETED, data={"n": 9}))
    again = Part(name="done", status=PartStatus.IN_PROGRESS, reopen=True)
    await report(engine, worker, lease, again, Part(name="twin", status=PartStatus.IN_PROGRESS))
    assert await statuses(engine, lease) == {"done": ("in_progress", None), "twin": ("completed", {"n": 9})}
    assert await statuses(engine, other) == {"done": ("completed", {"n": 1}), "twin": ("completed", {"n": 9})}
    [done, _] = await engine.reads.parts(lease.id)
    assert (done.percent, done.completed_at, done.started_at is None) == (None, None, False)


@pytest.mark.parametrize("how", ["fail", "reap"])
@pytest.mark.parametrize(("keep", "discard"), [(True, False), (True, True), (False, False), (False, True)])
async def test_a_retry_resets_parts_as_the_policy_says(
    engine: Engine, worker: str, clock: MovableClock, how: str, keep: bool, discard: bool
) -> None:
    """R003-81, R003-112, R003-141, R003-142."""
    lease = await running(engine, worker, keep_completed_parts=keep, discard_partial_parts=discard)
    neighbour = await running(engine, worker)
    for each in (lease, neighbour):
        await report(engine, worker, each, *EACH)
    before = await statuses(engine, neighbour)
    if how == "fail":
        await engine.fail(worker, lease.id, lease.token, "boom")
    else:
        await sweep(engine, clock, 20)
        await engine.progress(worker, Progress(id=neighbour.id, token=neighbour.token))
        assert [row["id"] for row in await sweep(engine, clock, 11)] == [lease.id]
    fresh = ("pending", None)
    assert await statuses(engine, lease) == {
        **before,
        **({} if keep else {"done": fresh}),
        **({"begun": fresh, "broken": fresh} if discard else {}),
    }
    assert await statuses(engine, neighbour) == before
    if discard:
        begun = next(part for part in await engine.reads.parts(lease.id) if part.name == "begun")
        assert (begun.percent, begun.done, begun.total, begun.error) == (None, None, 10, None)


async def test_a_released_or_dead_job_keeps_its_parts(engine: Engine, worker: str) -> None:
    lease = await running(engine, worker, keep_completed_parts=False, discard_partial_parts=True, max_attempts=1)
    await report(engine, worker, lease, *EACH)
    before = await statuses(engine, lease)
    await engine.release(worker, lease.id, lease.token)
    assert await statuses(engine, lease) == before
    [lease] = await engine.claim(worker)
    assert (await engine.fail(worker, lease.id, lease.token, "boom")).state is State.DEAD
    assert await statuses(engine, lease) == before


async def test_transcode_resets_unfinished_parts_of_a_failed_attempt(engine: Engine, worker: str) -> None:
    """R003-142."""
    await engine.create(NewJob(type="film", lifecycle="transcode"))
    [lease] = await engine.claim(worker)
    await report(engine, worker, lease, *EACH)
    await engine.fail(worker, lease.id, lease.token, "boom")
    assert {name: status for name, (status, _) in (await statuses(engine, lease)).items()} == {
        "done": "completed",
        "above": "skipped",
        "begun": "pending",
        "broken": "pending",
        "later": "pending",
    }
