"""claim: leases of up to n jobs, each with its own token; which worker may claim which job, and in which order."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.claim import claim
from holdfast.errors import Invalid, NotFound, StoreUnavailable, WorkerDisabled
from holdfast.lifecycle import State
from holdfast.model import Lease, Liveness, NewJob
from holdfast.store import PostgresStore, Tx
from tests.engine.steps import UNKNOWN_ID, ask, held, run, stored, sweep


def names(leases: Iterable[Lease]) -> list[str]:
    return [lease.payload["name"] for lease in leases]


def job(name: str, **fields: object) -> NewJob:
    return NewJob(**{"type": "n", "payload": {"name": name}, **fields})  # type: ignore[arg-type]


async def test_a_claim_returns_token_attempt_and_expiry_and_records_the_lease(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R001-29, R001-31, R003-45, C-45: token, attempt and expiry; the row says who, since when and until when."""
    await engine.create(job("a", tags=["t"]))
    clock.advance(5)
    [lease] = await engine.claim(worker, instance="pod-1")

    assert (lease.payload, lease.tags, lease.attempt, lease.epoch, lease.max_attempts) == (
        {"name": "a"},
        ["t"],
        1,
        1,
        5,
    )
    assert lease.expires_at == clock.now() + timedelta(seconds=30)
    row = await engine.reads.get(lease.id)
    assert (row.state, row.lease_worker, row.lease_instance) == (State.RUNNING, worker, "pod-1")
    assert (row.lease_token, row.lease_expires_at) == (lease.token, lease.expires_at)
    assert row.started_at == row.claimed_at == clock.now()
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.actor, event.worker_id, event.attempt, event.epoch) == ("claim", "worker", worker, 1, 1)


async def test_each_claimed_job_has_its_own_lease(engine: Engine, worker: str) -> None:
    """C-25: never one lease for many jobs."""
    await engine.create_many([job(str(n)) for n in range(5)])

    leases = await engine.claim(worker, limit=3)

    assert len({lease.token for lease in leases}) == len({lease.id for lease in leases}) == 3
    await engine.complete(worker, leases[0].id, leases[0].token)
    states = [(await engine.reads.get(lease.id)).state for lease in leases]
    assert states == [State.SUCCEEDED, State.RUNNING, State.RUNNING]
    assert len(await engine.claim(worker)) == 1, "one, unless more are asked for (R001-67)"


async def test_started_at_is_the_first_claim_and_each_attempt_has_its_own_start(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-45, R003-14, R004-13."""
    first = await run(engine, worker)
    clock.advance(7)
    await engine.release(worker, first.id, first.token)
    clock.advance(7)
    [second] = await engine.claim(worker)
    await engine.complete(worker, second.id, second.token)

    row = await engine.reads.get(first.id)
    assert row.started_at == first.claimed_at
    assert [a.started_at for a in await engine.reads.attempts(first.id)] == [first.claimed_at, second.claimed_at]


async def test_a_worker_takes_only_the_queues_and_types_it_names(engine: Engine, worker: str) -> None:
    await engine.create_many([job("a", queue="x"), job("b", queue="y"), job("c", queue="y", type="m")])

    assert await engine.claim(worker, limit=9, queues=["z"]) == []
    assert await engine.claim(worker, limit=9, queues=["x"], types=["m"]) == []
    assert await engine.claim(worker, limit=9, queues=[]) == []
    assert names(await engine.claim(worker, limit=9, queues=["y"], types=["m", "o"])) == ["c"]
    assert names(await engine.claim(worker, limit=9, queues=["x", "y"])) == ["a", "b"]


async def test_first_in_first_out_within_a_lane(engine: Engine, worker: str) -> None:
    await engine.create_many([job(str(n)) for n in range(4)])

    assert names([*await engine.claim(worker, limit=2), *await engine.claim(worker, limit=2)]) == ["0", "1", "2", "3"]


async def test_priorities_hold_across_lanes(engine: Engine, worker: str) -> None:
    """The next job is always the most urgent of all lanes, however many are claimed at once."""
    for n, priority in enumerate([4, 9, 2, 8, 7, 1, 9, -100, 100, 3]):
        await engine.create(job(str(priority), priority=priority, type=f"type-{n % 2}"))

    one_by_one = [names(await engine.claim(worker, limit=limit)) for limit in (1, 3, 2, 4)]

    assert one_by_one == [["100"], ["9", "9", "8"], ["7", "4"], ["3", "2", "1", "-100"]]


async def test_a_long_claim_over_many_lanes_and_priorities_is_filled(engine: Engine, worker: str) -> None:
    priorities = [(n * 37) % 20 for n in range(60)]
    await engine.create_many([job(str(p), priority=p, type=f"type-{n % 5}") for n, p in enumerate(priorities)])

    claimed: list[str] = []
    while leases := await engine.claim(worker, limit=25):
        claimed += names(leases)

    assert claimed == [str(p) for p in sorted(priorities, reverse=True)]


async def test_required_capabilities_decide_who_may_take_a_job(engine: Engine, worker: str) -> None:
    """R003-27: all that a job requires, in name and in detail."""
    await engine.create(job("cut", requires=["gpu", "codecs:h264"]))
    blind = (await engine.workers.register(capabilities={"gpu": True, "codecs": ["vp9"]})).id
    off = (await engine.workers.register(capabilities={"gpu": False, "codecs": ["h264"]})).id
    able = (await engine.workers.register(capabilities={"gpu": "a100", "codecs": ["vp9", "h264"], "more": 1})).id

    for other in (worker, blind, off):
        assert await engine.claim(other) == []
    assert names(await engine.claim(able)) == ["cut"]


async def test_jobs_that_a_worker_may_not_take_do_not_block_the_jobs_behind_them(engine: Engine, worker: str) -> None:
    await engine.create_many([job("no", requires=["gpu"], priority=9) for _ in range(30)])
    await engine.create_many([job("later", priority=9, delay_seconds=60) for _ in range(30)])
    await engine.create(job("yes"))

    assert names(await engine.claim(worker, limit=5)) == ["yes"]


async def test_a_worker_leaves_a_job_to_an_idle_preferred_worker_until_the_defer_time_is_over(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-33, R003-40, R003-50, R003-107, R003-150, R003-163 (#264): until it has waited long enough; its age decides."""
    gpu = (await engine.workers.register(capabilities={"gpu": True})).id
    await engine.heartbeat(gpu, [])
    await engine.create(job("cut", lifecycle="transcode", prefers=["gpu"]))

    assert await engine.claim(worker) == []
    for _ in range(6):
        clock.advance(9.9)
        await engine.heartbeat(gpu, [])
    assert await engine.claim(worker) == [], "it has waited 59.4 s"
    clock.advance(0.6)
    assert names(await engine.claim(worker)) == ["cut"]


@pytest.mark.parametrize("why_not", ["busy", "silent", "disabled", "leaving", "unable", "absent"])
async def test_a_worker_does_not_defer_to_a_preferred_worker_that_cannot_take_the_job(
    engine: Engine, worker: str, clock: MovableClock, why_not: str
) -> None:
    """C-33: only an idle, capable, enabled one counts."""
    offers = {"gpu": True} if why_not == "unable" else {"gpu": True, "big": True}
    gpu = (await engine.workers.register(capabilities=offers)).id
    able = (await engine.workers.register(capabilities={"big": True})).id
    await engine.heartbeat(gpu, [])
    match why_not:
        case "busy":
            await run(engine, gpu)
        case "silent":
            clock.advance(20.1)
        case "disabled":
            await engine.workers.disable(gpu)
        case "leaving":
            await engine.heartbeat(gpu, [], liveness=Liveness.OFFLINE)
        case "absent":
            await ask(engine, "DELETE FROM holdfast_workers WHERE id = :id RETURNING id", id=gpu)
    await engine.create(job("cut", prefers=["gpu"], requires=["big"]))

    assert names(await engine.claim(able)) == ["cut"]


async def test_a_preferred_worker_claims_without_waiting(engine: Engine, worker: str) -> None:
    gpus = [(await engine.workers.register(capabilities={"gpu": True})).id for _ in range(2)]
    for gpu in gpus:
        await engine.heartbeat(gpu, [])
    await engine.create(job("cut", prefers=["gpu"]))
    assert await engine.claim(worker) == []
    assert names(await engine.claim(gpus[0])) == ["cut"]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(engine: Engine, worker: str) -> None:
    """Pausing stops claims, not creates, and does not touch what runs; it is for one tenant."""
    running = await run(engine, worker, queue="q")
    await engine.queues.pause("q", by="ann")
    await engine.create_many([job("ours", queue="q"), job("theirs", queue="q", tenant="b"), job("other")])

    assert names(await engine.claim(worker, limit=9)) == ["theirs", "other"]
    await engine.complete(worker, running.id, running.token)
    assert await engine.queues.resume("q")
    assert names(await engine.claim(worker, limit=9)) == ["ours"]
    assert not await engine.queues.resume("never heard of")


async def test_a_worker_registered_for_some_tenants_serves_only_them(engine: Engine, worker: str) -> None:
    bound = (await engine.workers.register(tenants=["a", "b"])).id
    await engine.create_many([job(tenant, tenant=tenant) for tenant in ("a", "b", "c")])

    assert names(await engine.claim(bound, limit=9)) == ["a", "b"]
    assert names(await engine.claim(worker, limit=9)) == ["c"]


async def test_a_disabled_worker_claims_nothing_but_may_finish(engine: Engine, worker: str) -> None:
    """C-32."""
    lease = await run(engine, worker)
    await engine.create(job("next"))
    await engine.workers.disable(worker)

    with pytest.raises(WorkerDisabled):
        await engine.claim(worker)
    assert (await engine.heartbeat(worker, [held(lease)])).lost == []
    await engine.complete(worker, lease.id, lease.token)
    await engine.workers.enable(worker)
    assert names(await engine.claim(worker)) == ["next"]


async def test_a_claim_with_invalid_arguments_is_rejected(engine: Engine, worker: str) -> None:
    created = await engine.create(job("a"))
    before = await stored(engine, created.id)
    with pytest.raises(NotFound):
        await engine.claim(UNKNOWN_ID)
    for wrong in (
        {"worker": "me"},
        {"limit": 0},
        {"limit": 1001},
        {"limit": True},
        {"queues": ["\x00"]},
        {"types": [""]},
        {"instance": "\x00"},
    ):
        with pytest.raises(Invalid):
            await engine.claim(**{"worker": worker, **wrong})  # type: ignore[arg-type]
    assert await stored(engine, created.id) == before


async def test_a_running_job_is_never_claimed(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-26, R000-40: the claim itself does not touch it, not even when its lease ran out; reaping is its own move."""
    lease = await run(engine, worker)
    other = (await engine.workers.register()).id
    clock.advance(3600)
    before = await stored(engine, lease.id)

    claimed = await engine.store.write(
        lambda tx: claim(tx, engine.ctx, worker=other, instance=None, queues=None, types=None, limit=9)
    )

    assert claimed == []
    assert await stored(engine, lease.id) == before


async def test_a_claim_that_is_not_filled_reaps_expired_leases_and_claims_again(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-26, R000-39, R000-41, R001-62, R001-73: what expired in its queues is freed first."""
    lost = await run(engine, worker, queue="a")
    await run(engine, worker, queue="b")
    other = (await engine.workers.register()).id
    clock.advance(29)
    assert await engine.claim(other, queues=["a"]) == []
    clock.advance(1)

    [lease] = await engine.claim(other, queues=["a"], limit=9)

    assert (lease.id, lease.attempt, lease.epoch, lease.lost) == (lost.id, 2, 2, 1)
    assert lease.token != lost.token
    assert [e.verb for e in await engine.reads.history(lost.id)][-3:] == ["claim", "reap", "claim"]
    assert [job.state for job in (await engine.reads.page()).jobs] == [State.RUNNING, State.RUNNING]


async def test_a_due_retry_is_claimed_directly_or_queued_first_as_the_lifecycle_says(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-2, R000-15, R002-9, R001-14, R001-20, R004-22."""
    paths = {}
    for lifecycle in ("default", "images", "crawl", "transcode", "orchestration", "generation"):
        lease = await run(engine, worker, type=lifecycle, lifecycle=lifecycle)
        await engine.fail(worker, lease.id, lease.token, "E_HICCUP", retry_after_seconds=5)
        assert await engine.claim(worker, types=[lifecycle]) == []
        clock.advance(5)
        [again] = await engine.claim(worker, types=[lifecycle])
        assert (again.id, again.attempt) == (lease.id, 2)
        paths[lifecycle] = [e.to_state for e in (await engine.reads.history(lease.id))[-3:]]
    direct, through = ["running", "retrying", "running"], ["retrying", "queued", "running"]
    assert paths == {
        **dict.fromkeys(("default", "images", "crawl", "transcode"), direct),
        **dict.fromkeys(("orchestration", "generation"), through),
    }


async def test_a_claim_returns_its_leases_although_the_following_read_failed(
    engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that never reaches its worker would expire and count against the job."""
    await engine.create(job("a"))

    async def lost(_work: object) -> None:
        raise StoreUnavailable("the connection is gone")

    monkeypatch.setattr(engine.store, "read", lost)
    assert names(await engine.claim(worker, limit=5)) == ["a"]
    with pytest.raises(StoreUnavailable):
        await engine.claim(worker)


async def test_many_workers_at_once_never_share_a_job(engine: Engine, clock: MovableClock) -> None:
    """R001-24, R001-74, R003-103, R003-146, R003-151, R003-160, R003-163 (#262), S3."""
    workers = [(await engine.workers.register()).id for _ in range(8)]
    await engine.create_many([job(str(n)) for n in range(100)])

    async def take_all(worker: str) -> list[Lease]:
        taken: list[Lease] = []
        while leases := await engine.claim(worker, limit=7):
            taken += leases
        return taken

    leases = [lease for taken in await asyncio.gather(*map(take_all, workers)) for lease in taken]

    assert len(leases) == len({lease.id for lease in leases}) == len({lease.token for lease in leases}) == 100
    assert {lease.epoch for lease in leases} == {1}


async def test_the_epoch_rises_by_one_with_every_claim(engine: Engine, worker: str, clock: MovableClock) -> None:
    """S3: whatever ended the execution before, also where the attempt is given back."""
    lease = await run(engine, worker, policy={"max_attempts": 9, "max_lost": 9})
    epochs, tokens = [lease.epoch], {lease.token}
    for end in ("release", "fail", "lose", "release"):
        match end:
            case "release":
                await engine.release(worker, lease.id, lease.token)
            case "fail":
                await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)
            case _:
                await sweep(engine, clock, 40)
        clock.advance(5)
        [lease] = await engine.claim(worker)
        epochs.append(lease.epoch)
        tokens.add(lease.token)
    assert epochs == [1, 2, 3, 4, 5]
    assert len(tokens) == 5
    assert [attempt.epoch for attempt in await engine.reads.attempts(lease.id)] == [1, 2, 3, 4]


async def test_a_claim_skips_jobs_that_another_claim_has_locked(engine: Engine, worker: str) -> None:
    """R001-66, R003-41: on PostgreSQL two claims run at once, and the second one waits for no row of the first."""
    if not isinstance(engine.store, PostgresStore):
        pytest.skip("SQLite has one writer at a time")
    await engine.create_many([job("first"), job("second")])
    claimed, commit = asyncio.Event(), asyncio.Event()

    async def slowly(tx: Tx) -> list[Lease]:
        leases = await claim(tx, engine.ctx, worker=worker, instance=None, queues=None, types=None, limit=1)
        claimed.set()
        await commit.wait()
        return leases

    slow = asyncio.create_task(engine.store.write(slowly))
    await claimed.wait()
    try:
        async with asyncio.timeout(60):
            assert names(await engine.claim(worker, limit=2)) == ["second"]
    finally:
        commit.set()
    assert names(await slow) == ["first"]
