"""A disabled worker claims no more jobs, and a revoked key is rejected."""

import asyncio

import pytest

from holdfast.model import NewJob
from tests.server.http_worker import hand, held, waiting_there
from tests.server.steps import Served, serving

PATIENCE_SECONDS = 60.0  # moments, and on a busy machine more


async def test_a_disabled_worker_claims_nothing_and_may_finish_what_it_holds(served: Served) -> None:
    """C-32, R003-30."""
    me = await hand(served)
    for _ in range(3):
        await served.engine.create(NewJob(type="echo"))
    done, given_back = await me.claim(limit=2, requestId="r")
    await served.engine.workers.disable(me.id)
    for body in ({}, {"waitSeconds": 30}, {"requestId": "another"}):
        answer = await me.say("claim", **body)
        assert (answer.status_code, answer.json()["code"]) == (403, "worker_disabled")
    beat = await me.told("heartbeat", leases=[held(done), held(given_back)])
    assert (beat["drain"], beat["lost"]) == (True, [])
    assert len(await me.claim(limit=2, requestId="r")) == 2  # what it holds, told again
    await me.told("progress", **held(done))
    await me.told("complete", **held(done))
    await me.told("release", **held(given_back))
    await served.engine.workers.enable(me.id)
    assert (await me.told("heartbeat"))["drain"] is False
    assert len(await me.claim(limit=9)) == 2


@pytest.mark.parametrize("body", [{}, {"requestId": "r"}], ids=str)
async def test_disabling_a_worker_ends_its_long_poll(served: Served, body: dict[str, str]) -> None:
    me, other = await hand(served), await hand(served)
    waiting = asyncio.create_task(me.say("claim", waitSeconds=30, **body))
    await waiting_there(served, 1)
    await served.engine.workers.disable(me.id)
    await served.engine.create(NewJob(type="echo"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await waiting).status_code == 403
    assert len(await other.claim()) == 1


async def test_a_revoked_key_is_rejected_everywhere_within_seconds(store_url: str) -> None:
    """R003-98: also on a server that has just seen it to be good, and for whoever waits there already."""
    async with serving(store_url) as one, serving(store_url) as two:
        me, other = await hand(one), await hand(one)
        there = me.elsewhere(two)
        await one.engine.create(NewJob(type="echo"))
        job = await there.claim_one()
        waiting = asyncio.create_task(there.say("claim", waitSeconds=30))
        await waiting_there(two, 1)
        await one.engine.workers.revoke(me.id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for hands in (me, there):
                while (await hands.say("heartbeat", leases=[held(job)])).status_code != 401:
                    continue
        assert (await there.say("complete", **held(job))).status_code == 401
        await one.engine.create(NewJob(type="echo"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await waiting).status_code in (401, 403)  # its worker is disabled, too
        assert len(await other.claim()) == 1


async def test_a_rotated_key_continues_with_the_leases_of_its_worker(served: Served) -> None:
    """A lease belongs to the worker, not to the key."""
    me = await hand(served)
    await served.engine.create(NewJob(type="echo"))
    job = await me.claim_one()
    [old] = [key for key in await served.engine.keys.all() if key.worker_id == me.id]
    me.key = (await served.engine.keys.rotate(old.id)).text
    await served.engine.keys.revoke(old.id)
    await me.told("complete", **held(job))
