import asyncio, pytest
from contextlib import AsyncExitStack
from holdfast.settings import Settings
from tests.dispatch.stories import *
from tests.dispatch.conftest import place  # noqa
from tests.dispatch.places import Place

@pytest.mark.parametrize("mode", ["redis", "nats"])
async def test_burst(place: Place, fresh_postgres_url: str):
    settings = place.settings(fresh_postgres_url, poll_seconds=60)
    async with AsyncExitStack() as stack:
        creator = await stack.enter_async_context(creating(settings))
        hands = [await stack.enter_async_context(hand(settings, slots=5)) for _ in range(12)]
        for h in hands: h.pause = 0.3
        await idle(*hands)
        import time
        t = time.monotonic()
        ids = await jobs(creator.engine, 300)
        await until(lambda: sum(len(h.done) for h in hands) >= 300)
        print(place.mode, time.monotonic() - t, [len(h.done) for h in hands])
        assert all(h.done for h in hands)
        await idle(*hands)
        for h in hands: h.done.clear(); h.pause = 0
        # one at a time, quick
        worst = 0
        for n in range(60):
            t = time.monotonic()
            ids = await jobs(creator.engine, 1)
            await until(lambda: any(ids[0] in h.done for h in hands))
            worst = max(worst, time.monotonic() - t)
        print("worst", worst)
        # trickle with busy-ness: each hand alone gets busy quickly
        for h in hands: h.pause = 0.06; h.slots = 1; h.done.clear()
        all_ids = []
        born = {}
        for n in range(400):
            (i,) = await jobs(creator.engine, 1); born[i] = time.monotonic(); all_ids.append(i)
            await asyncio.sleep(0.005)
        await until(lambda: sum(len(h.done) for h in hands) >= 400)
        print("trickle", time.monotonic() - born[all_ids[-1]])

@pytest.mark.parametrize("mode", ["redis", "nats"])
async def test_random_single(place: Place, fresh_postgres_url: str):
    import random, time
    settings = place.settings(fresh_postgres_url, poll_seconds=60)
    chance = random.Random(1)
    async with AsyncExitStack() as stack:
        creator = await stack.enter_async_context(creating(settings))
        hands = [await stack.enter_async_context(hand(settings, slots=1)) for _ in range(4)]
        for h in hands: h.pause = 0.05
        await idle(*hands)
        worst = 0.0
        for n in range(250):
            t = time.monotonic()
            k = chance.randint(1, 3)
            ids = []
            for _ in range(k):
                ids += await jobs(creator.engine, 1)
                await asyncio.sleep(chance.choice([0, 0, 0.045, 0.05, 0.055]))
            try:
                await until(lambda: set(ids) <= {j for h in hands for j in h.done}, seconds=8)
            except TimeoutError:
                print("LOST round", n, k, [(len(h.hints._unseen), h.hints._waiting, dict(h.tally)) for h in hands])
                raise
            worst = max(worst, time.monotonic() - t)
            await asyncio.sleep(chance.choice([0, 0.01, 0.04, 0.05, 0.06, 0.1]))
        print(place.mode, "worst", worst)
