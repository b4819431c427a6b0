"""progress: stored, merged, recorded as an event; it extends the lease, and a checkpoint survives the attempt."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, Progress
from holdfast.errors import Invalid, LeaseLost
from holdfast.lifecycle import State
from holdfast.model import Lease, Part, PartStatus
from tests.engine.steps import UNKNOWN_ID, run, stored, sweep


async def test_progress_is_stored_recorded_as_an_event_and_extends_the_lease(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R002-13, R003-12, R003-13, R003-15, R003-54, C-38."""
    lease = await run(engine, worker)
    clock.advance(20)

    advanced = await engine.progress(
        worker,
        Progress(id=lease.id, token=lease.token, step="render", percent=40, eta_seconds=90, counters={"urls": 3}),
    )

    assert advanced.expires_at == clock.now() + timedelta(seconds=30)
    job = await engine.reads.get(lease.id)
    assert (job.step, job.percent, job.counters) == ("render", 40, {"urls": 3})
    assert job.eta_at == clock.now() + timedelta(seconds=90)
    assert (job.progress_at, job.lease_expires_at) == (clock.now(), advanced.expires_at)
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.step, event.percent, event.data) == ("progress", "render", 40, {"urls": 3})
    assert (event.from_state, event.to_state, event.worker_id) == (None, None, worker)


async def test_progress_keeps_omitted_fields_and_merges_counters(engine: Engine, worker: str) -> None:
    """R002-32..38: counters are merged by name."""
    lease = await run(engine, worker)
    for report in (
        {"step": "fetch", "percent": 10.5, "counters": {"urls_total": 9, "urls_processed": 1}, "checkpoint": {"at": 1}},
        {"counters": {"urls_processed": 2, "chunks_indexed": 7}},
        {"percent": 0},
    ):
        await engine.progress(worker, Progress(id=lease.id, token=lease.token, **report))

    job = await engine.reads.get(lease.id)
    assert (job.step, job.percent, job.checkpoint) == ("fetch", 0, {"at": 1})
    assert job.counters == {"urls_total": 9, "urls_processed": 2, "chunks_indexed": 7}


async def test_a_checkpoint_is_handed_to_the_next_attempt(engine: Engine, worker: str, clock: MovableClock) -> None:
    """R001-5, C-44, R003-161: after a failure, a release and a crash; percent starts again."""
    lease = await run(engine, worker)
    assert lease.checkpoint is None
    for n, end in enumerate(("fail", "release", "crash")):
        await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=50, checkpoint={"page": n}))
        match end:
            case "fail":
                await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)
            case "release":
                await engine.release(worker, lease.id, lease.token)
            case _:
                await sweep(engine, clock, 30)
                await sweep(engine, clock, 10)  # its backoff
        [lease] = await engine.claim(worker)
        assert lease.checkpoint == {"page": n}
        assert (await engine.reads.get(lease.id)).percent is None


async def test_parts_have_their_own_progress_and_finished_ones_stay_finished(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R003-31..33, R003-55, R003-80, R003-81, R003-112, C-43: a retry finds them as they were, and redoes the rest."""
    lease = await run(engine, worker, lifecycle="transcode")
    begun = clock.now()
    await engine.progress(
        worker,
        Progress(
            id=lease.id,
            token=lease.token,
            parts=[
                Part(name="1080p", status=PartStatus.IN_PROGRESS, percent=10, total=40, done=4),
                Part(name="720p", status=PartStatus.COMPLETED, percent=100, data={"files": 3}),
                Part(name="2160p", status=PartStatus.SKIPPED),
                Part(name="480p"),
            ],
        ),
    )
    clock.advance(5)
    failed = Part(name="1080p", status=PartStatus.FAILED, error="no memory")
    again = Part(name="720p", status=PartStatus.IN_PROGRESS, percent=0)
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, parts=[failed, again]))

    hd, sd, uhd, low = {part.name: part for part in await engine.reads.parts(lease.id)}.values()
    assert hd.name == "1080p", "in the order they were told"
    assert (hd.status, hd.percent, hd.total, hd.done, hd.error) == (PartStatus.FAILED, 10, 40, 4, "no memory")
    assert (hd.started_at, hd.completed_at) == (begun, None)
    assert (sd.status, sd.percent, sd.data, sd.completed_at) == (PartStatus.COMPLETED, 100, {"files": 3}, begun)
    assert (uhd.status, low.status, low.started_at) == (PartStatus.SKIPPED, PartStatus.PENDING, None)

    await engine.fail(worker, lease.id, lease.token, "E_GPU")
    [retry] = await engine.claim(worker)
    to_do = {part.name: part.status for part in (await engine.reads.parts_to_do([retry.id]))[retry.id]}
    assert to_do == {"1080p": "pending", "720p": "completed", "2160p": "skipped", "480p": "pending"}
    done = Part(name="1080p", status=PartStatus.COMPLETED)
    await engine.progress(worker, Progress(id=retry.id, token=retry.token, parts=[done]))
    assert (await engine.reads.parts(retry.id))[0].error is None


async def test_progress_of_a_lost_lease_leaves_no_trace(engine: Engine, worker: str, clock: MovableClock) -> None:
    """S4: also no counters and no parts, and its neighbours in the batch are kept."""
    lost, kept = await run(engine, worker), await run(engine, worker)
    await engine.release(worker, lost.id, lost.token)
    before = await stored(engine, lost.id)

    stale, fresh = await engine.progress_many(
        worker,
        [
            Progress(id=lost.id, token=lost.token, percent=5, counters={"n": 1}, parts=[Part(name="a")]),
            Progress(id=kept.id, token=kept.token, percent=5, counters={"n": 1}, parts=[Part(name="a")]),
        ],
    )

    assert isinstance(stale, LeaseLost)
    assert not isinstance(fresh, LeaseLost)
    assert await stored(engine, lost.id) == before
    assert (await engine.reads.get(kept.id)).counters == {"n": 1}


WRONG: list[dict[str, Any]] = [
    {"percent": 101},
    {"percent": -1},
    {"percent": True},
    {"percent": float("nan")},
    {"step": ""},
    {"step": "\x00"},
    {"eta_seconds": -1},
    {"eta_seconds": "soon"},
    {"counters": {"n": float("inf")}},
    {"counters": {"n": "x" * 20_000}},
    {"checkpoint": {1: 2}},
    {"checkpoint": "x" * 300_000},
    {"parts": [Part(name="a"), Part(name="a")]},
    {"parts": [Part(name="")]},
    {"parts": [Part(name="a", percent=101)]},
    {"parts": [Part(name="a", total=2**40)]},
    {"parts": [Part(name=str(n)) for n in range(1001)]},
]


async def test_an_invalid_progress_report_is_rejected(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    for wrong in WRONG:
        with pytest.raises(Invalid):
            await engine.progress(worker, Progress(id=lease.id, token=lease.token, **wrong))
    assert await stored(engine, lease.id) == before


async def test_the_error_of_a_part_is_cleaned_and_truncated(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    part = Part(name="a", status=PartStatus.FAILED, error="\x00\ud800" + "x" * 5000)
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, parts=[part]))

    [kept] = await engine.reads.parts(lease.id)
    assert kept.error is not None
    assert (kept.error[:3], kept.error[-1], len(kept.error)) == ("\ufffd?x", "…", 4000)


async def test_progress_with_an_unknown_token_raises_lease_lost(engine: Engine, worker: str) -> None:
    for job_id, token in ((UNKNOWN_ID, UNKNOWN_ID), ("no id", "no token")):
        with pytest.raises(LeaseLost):
            await engine.progress(worker, Progress(id=job_id, token=token, percent=1, parts=[Part(name="a")]))


async def test_complete_sets_the_percentage_to_100(engine: Engine, worker: str) -> None:
    """R003-60."""
    lease = await run(engine, worker)
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=30, step="upload"))
    await engine.complete(worker, lease.id, lease.token)

    job = await engine.reads.get(lease.id)
    assert (job.state, job.percent, job.step) == (State.SUCCEEDED, 100, "upload")


async def test_complete_sets_the_step_of_a_transcode_job_to_finalize(engine: Engine, worker: str) -> None:
    """R003-60."""
    lease = await run(engine, worker, lifecycle="transcode")
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=30, step="master_playlist"))
    await engine.complete(worker, lease.id, lease.token)

    job = await engine.reads.get(lease.id)
    assert (job.state, job.percent, job.step) == (State.SUCCEEDED, 100, "finalize")


async def end_by(verb: str, engine: Engine, worker: str, lease: Lease, clock: MovableClock) -> None:
    match verb:
        case "fail":
            await engine.fail(worker, lease.id, lease.token, "E")
        case "bury":
            await engine.fail(worker, lease.id, lease.token, "E", permanent=True)
        case "release":
            await engine.release(worker, lease.id, lease.token)
        case "complete":
            await engine.complete(worker, lease.id, lease.token)
        case "cancel":
            await engine.cancel(lease.id)
            await engine.fail(worker, lease.id, lease.token, "canceled")
        case "reject":
            await engine.reject(worker, lease.id, lease.token, "E")
        case "reap":
            await sweep(engine, clock, 60)


@pytest.mark.parametrize(
    ("verb", "lifecycle", "step"),
    [
        ("fail", "default", "encode"),
        ("bury", "default", "encode"),
        ("complete", "default", "encode"),
        ("cancel", "default", "encode"),
        ("reject", "default", "encode"),
        ("release", "transcode", None),
        ("release", "default", None),
        ("reap", "default", None),
    ],
)
async def test_claimed_at_is_cleared_when_an_attempt_ends_and_kept_in_its_record(
    engine: Engine, worker: str, clock: MovableClock, verb: str, lifecycle: str, step: str | None
) -> None:
    """R003-5, R003-75, R003-88, C-30: claimed_at is null where no worker has the job; a lost or released one has no
    step either."""
    lease = await run(engine, worker, lifecycle=lifecycle)
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, step="encode"))
    claimed = await engine.reads.get(lease.id)
    assert claimed.claimed_at == lease.claimed_at == clock.now()
    clock.advance(1)
    await end_by(verb, engine, worker, lease, clock)

    job = await engine.reads.get(lease.id)
    assert (job.claimed_at, job.lease_worker, job.step) == (None, None, step)
    assert job.started_at == lease.claimed_at
    [attempt] = await engine.reads.attempts(lease.id)
    assert (attempt.started_at, attempt.worker_id) == (lease.claimed_at, worker)


async def test_the_next_attempt_begins_without_a_step(engine: Engine, worker: str) -> None:
    """R003-5, R003-75."""
    lease = await run(engine, worker, lifecycle="transcode")
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=30, step="probe"))
    await engine.fail(worker, lease.id, lease.token, "E")
    [again] = await engine.claim(worker)
    job = await engine.reads.get(again.id)
    assert (job.claimed_at, job.step, job.percent) == (again.claimed_at, None, None)
