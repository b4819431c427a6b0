"""Every report of a worker, repeated at once and late: one outcome, and the same response."""

import random
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from holdfast.clock import MovableClock
from holdfast.model import NewJob
from tests.engine.steps import stored
from tests.server.http_worker import Hand, hand, held
from tests.server.steps import Served, serving

# What is said, the state that it leads to in the lifecycle `generation`, and other words with the same verb.
ENDS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "complete": ({"result": {"n": 1}}, "completed", {"result": {"n": 2}}),
    "fail": ({"errorCode": "E", "message": "m", "retryAfterSeconds": 0}, "failed", {"errorCode": "E", "message": "o"}),
    "release": ({}, "queued", {"delaySeconds": 5}),
    "reject": ({"errorCode": "E", "message": "m"}, "rejected", {"errorCode": "F", "message": "m"}),
}
LATE = ["at once", "reaped", "reassigned", "finished elsewhere"]


class Stage(NamedTuple):
    served: Served
    clock: MovableClock
    me: Hand
    other: Hand

    async def running(self, **job: Any) -> dict[str, Any]:
        await self.served.engine.create(NewJob(**{"type": "draw", "lifecycle": "generation", **job}))
        return await self.me.claim_one(requestId=f"r-{self.served.server.ids.bits(60)}")

    async def clear(self) -> None:
        """Nothing is left to claim."""
        await self.served.engine.maintenance.requeue_due()
        await self.other.claim(limit=100)

    async def pass_on(self, moment: str) -> None:
        """What becomes of a job whose worker has let it go, or has lost it."""
        if moment == "at once":
            return
        for _ in range(7):  # somebody sweeps all the time, so there is no grace for a silence of our own
            self.clock.advance(10)
            await self.served.engine.maintenance.reap()
        await self.served.engine.maintenance.requeue_due()
        if moment == "reaped":
            return
        jobs = await self.other.claim(limit=9)
        for job in jobs if moment == "finished elsewhere" else []:
            await self.other.told("complete", **held(job))


@pytest.fixture
async def stage(store_url: str) -> AsyncIterator[Stage]:
    clock = MovableClock()
    async with serving(store_url, clock=clock, startup_grace_seconds=0) as served:
        yield Stage(served, clock, await hand(served), await hand(served))


@pytest.mark.parametrize("moment", LATE)
async def test_a_repeated_final_report_gets_the_same_response(stage: Stage, moment: str) -> None:
    engine = stage.served.engine
    for verb, (body, state, otherwise) in ENDS.items():
        job = await stage.running()
        first = await stage.me.told(verb, **held(job), **body)
        assert first["state"] == state
        await stage.pass_on(moment)
        before = await stored(engine, job["jobId"])
        for _ in range(2):
            assert await stage.me.told(verb, **held(job), **body) == first
        await stage.me.refused(verb, **held(job), **otherwise)
        for another in ENDS.keys() - {verb}:
            await stage.me.refused(another, **held(job), **ENDS[another][0])
        await stage.me.refused("progress", **held(job), currentStep="on")
        await stage.other.refused(verb, **held(job), **body)
        assert await stored(engine, job["jobId"]) == before
        assert [attempt.token for attempt in await engine.reads.attempts(job["jobId"])].count(job["leaseToken"]) == 1
        await stage.clear()


@pytest.mark.parametrize("moment", LATE[1:])
async def test_a_report_with_a_lost_lease_says_whether_another_worker_has_the_job(stage: Stage, moment: str) -> None:
    """R003-109, R003-53, R003-59."""
    for verb in (*ENDS, "progress"):
        job = await stage.running()
        await stage.pass_on(moment)
        before = await stored(stage.served.engine, job["jobId"])
        for _ in range(2):
            refusal = await stage.me.refused(verb, **held(job), **(ENDS[verb][0] if verb in ENDS else {}))
            assert (refusal["jobId"], refusal["reassigned"]) == (job["jobId"], moment == "reassigned")
        beat = await stage.me.told("heartbeat", leases=[held(job)])
        assert beat["lost"] == [job["jobId"]]
        assert await stored(stage.served.engine, job["jobId"]) == before
        await stage.clear()


@pytest.mark.parametrize("moment", LATE)
async def test_a_repeated_claim_takes_no_second_job(stage: Stage, moment: str) -> None:
    for _ in range(3):
        await stage.served.engine.create(NewJob(type="draw"))
    first = await stage.me.claim(requestId="r", limit=2)
    await stage.pass_on(moment)
    again = await stage.me.claim(requestId="r", limit=2)
    assert again == (first if moment == "at once" else [])


async def test_progress_and_heartbeats_can_be_repeated(stage: Stage) -> None:
    job = await stage.running()
    for _ in range(3):
        await stage.me.told("progress", **held(job), progressPercent=40, counters={"pages": 2}, checkpoint=[1])
        await stage.me.told("heartbeat", leases=[held(job), held(job)])
    running = await stage.served.engine.reads.get(job["jobId"])
    assert (running.percent, running.counters, running.checkpoint) == (40, {"pages": 2}, [1])


async def test_the_transcode_lifecycle_rejects_reports_after_the_lease_expired(stage: Stage) -> None:
    """R003-59, R003-109, C-29: nobody has the job yet, and still the late worker does not write."""
    job = await stage.running(lifecycle="transcode")
    stage.clock.advance(1801)
    for verb, words in {"complete": {}, "fail": {"errorCode": "E"}, "progress": {}}.items():
        assert (await stage.me.refused(verb, **held(job), **words))["reassigned"] is False
    assert (await stage.served.engine.reads.get(job["jobId"])).state == "running"


async def test_other_lifecycles_accept_reports_after_the_lease_expired(stage: Stage) -> None:
    """C-29."""
    job = await stage.running()
    stage.clock.advance(3600)
    await stage.me.told("progress", **held(job))
    stage.clock.advance(3600)
    assert (await stage.me.told("complete", **held(job)))["state"] == "completed"


@pytest.mark.parametrize("seed", range(3))
async def test_any_sequence_of_reports_has_one_outcome(stage: Stage, seed: int) -> None:
    """Each execution ends once; the same words are always answered alike; a job is done by at most one of them."""
    chance = random.Random(seed)
    ended: dict[str, tuple[str, int, dict[str, Any]]] = {}  # by token
    leases = [(stage.me, await stage.running(max_attempts=50)) for _ in range(3)]
    for _ in range(100):
        if chance.random() < 0.15:
            hands = chance.choice([stage.me, stage.other])
            leases += [(hands, job) for job in await hands.claim(limit=2)]
        elif chance.random() < 0.2:
            await stage.pass_on("reaped")
        else:
            (hands, job), verb = chance.choice(leases), chance.choice(list(ENDS))
            which = chance.choice([0, 2])
            answer = await hands.say(verb, **held(job), **ENDS[verb][which])
            if answer.status_code == 200:
                known = ended.setdefault(job["leaseToken"], (verb, which, answer.json()))
                assert known == (verb, which, answer.json())
            else:
                assert answer.json()["code"] == "lease_lost"
    for job_id in {job["jobId"] for _, job in leases}:
        attempts = await stage.served.engine.reads.attempts(job_id)
        assert len({attempt.token for attempt in attempts}) == len(attempts)
        final = [attempt for attempt in attempts if attempt.to_state in ("succeeded", "rejected", "dead")]
        assert len(final) <= 1
        mine = {job["leaseToken"] for _, job in leases if job["jobId"] == job_id}
        assert {attempt.token for attempt in attempts} >= mine & ended.keys()
