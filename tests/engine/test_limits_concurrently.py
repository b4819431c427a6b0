"""Many claimers at once, each with an engine of its own: never more than the limits allow, and no job is forgotten."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.claim import claim
from holdfast.errors import StoreError
from holdfast.ids import Ids, SeededIds
from holdfast.model import Lease, NewJob
from holdfast.model.limits import Limit
from holdfast.store import open_store
from holdfast.store.queries import Query
from tests.engine.limiting import crawl, crawl_by_domain, declare, domains, held_by_jobs, limit
from tests.engine.steps import ask
from tests.sampling import Sample

pytestmark = pytest.mark.slow
CLAIMERS = 8
PATIENCE_SECONDS = 120
KEYS = "abcde"
RUNNING = Query(
    "running", "SELECT limit_key, count(*) AS number FROM holdfast_jobs WHERE state = 'running' GROUP BY limit_key"
)


@pytest.fixture
async def engines(store_url: str) -> AsyncIterator[list[Engine]]:
    """The clock is the real one: the claimers run at the same time."""
    async with AsyncExitStack() as stack:
        opened = []
        for number in range(CLAIMERS + 1):
            clock, ids = Clock(), SeededIds(number)
            opened.append(Engine(await open_store(store_url, clock, ids), clock=clock, ids=ids))
            stack.push_async_callback(opened[-1].close)
        yield opened


@dataclass
class Crowd:
    """Claimers that complete what they claim, and one who looks how many jobs run."""

    number: int
    at_once: int
    each_key: int
    done: int = 0
    looks: int = 0
    most: int = 0
    empty_claims: int = 0

    async def claimer(self, engine: Engine, place: int, seed: str) -> None:
        worker = (await engine.workers.register(name=f"claimer {place}")).id
        chance, requests = random.Random(f"{seed} {place}"), 0
        while self.done < self.number:
            if place % 2:
                requests += 1
                leases = await engine.claim_once(worker, f"{place} {requests}", limit=chance.randint(1, 4)) or []
            else:
                leases = await engine.claim(worker, limit=chance.randint(1, 4))
            self.empty_claims += not leases
            for lease in leases:
                await self._end(engine, worker, lease, chance)

    async def _end(self, engine: Engine, worker: str, lease: Lease, chance: random.Random) -> None:
        match chance.randrange(10):
            case 0:
                await engine.release(worker, lease.id, lease.token)
            case 1 if lease.attempt == 1:
                await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)
            case _:
                await engine.complete(worker, lease.id, lease.token)
                self.done += 1

    async def look(self, engine: Engine) -> None:
        """One statement sees one moment."""
        while self.done < self.number:
            rows = await engine.store.read(lambda tx: tx.all(RUNNING))
            running = {row["limit_key"]: row["number"] for row in rows}
            assert all(number <= self.each_key for number in running.values()), running
            assert sum(running.values()) <= self.at_once, running
            self.looks, self.most = self.looks + 1, max(self.most, sum(running.values()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("queues", [1, 3])
async def test_many_claimers_never_exceed_a_limit_and_finish_every_job(
    engines: list[Engine], sample: Sample, queues: int
) -> None:
    """In several queues, which are lanes that share the keys, with maintenance beside it."""
    number = 300 if sample.soak else 90
    watcher, *claimers = engines
    await crawl_by_domain(watcher, policy={"max_attempts": 100})
    await limit(watcher, "type:crawl", concurrency=3)
    for place in range(number):
        await crawl(watcher, KEYS[place % len(KEYS)], queue=f"queue-{place % queues}")
    crowd = Crowd(number, at_once=3, each_key=1)

    async def maintain() -> None:
        while queues > 1 and crowd.done < number:
            await watcher.job_limits.open_full_lanes()
            await asyncio.sleep(0.2)

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(crowd.look(watcher))
        group.create_task(maintain())
        for place, engine in enumerate(claimers):
            group.create_task(crowd.claimer(engine, place, sample.seed))
    print(f"{crowd.looks} looks, at most {crowd.most} at once, {crowd.empty_claims} claims found nothing")
    assert crowd.looks > 5
    assert await held_by_jobs(watcher) == {}


async def test_a_rate_is_kept_by_many_claimers(engines: list[Engine]) -> None:
    """So slow that none is refilled within the test."""
    watcher, *claimers = engines
    await declare(watcher, limit_key="domain", per_key=Limit(rate=1 / 86_400, burst=3.0))
    await crawl(watcher, *"aaaaaaaaabbbbbbbbb")

    async def claims(engine: Engine) -> list[Lease]:
        worker = (await engine.workers.register(name="claimer")).id
        return [lease for _ in range(12) for lease in await engine.claim(worker, limit=2)]

    found = [lease for some in await asyncio.gather(*map(claims, claimers)) for lease in some]
    assert sorted(domains(found)) == [*"aaabbb"]


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "types"])
async def test_a_claim_that_has_not_committed_hides_no_job_that_it_does_not_count(
    fresh_postgres_url: str, keyed: bool
) -> None:
    """Another claim takes the next key or type, and none of the one that is being counted."""
    engine = Engine(await open_store(fresh_postgres_url, Clock(), Ids()))
    try:
        await declare(engine, limit_key="domain" if keyed else None, per_key=Limit(2) if keyed else None)
        await limit(engine, "type:first", concurrency=2)
        one, two = [(await engine.workers.register(name=name)).id for name in ("one", "two")]
        for kind, urgent in (("first", 5), ("first", 5), ("second", 0)):
            await engine.create(NewJob(type="crawl" if keyed else kind, payload={"domain": kind}, priority=urgent))

        async def first(tx: Any) -> tuple[list[Lease], list[Lease]]:
            asked: dict[str, Any] = {"instance": None, "queues": None, "types": None, "limit": 1}
            mine = await claim(tx, engine.ctx, worker=one, **asked)
            return mine, await engine.claim(two)

        mine, theirs = await engine.store.write(first)
        assert domains([*mine, *theirs]) == ["first", "second"]
        assert len(await engine.claim(two, limit=5)) == 1
    finally:
        await engine.close()


async def test_a_claim_that_is_rolled_back_takes_nothing(fresh_postgres_url: str) -> None:
    engine = Engine(await open_store(fresh_postgres_url, Clock(), Ids()))
    try:
        await crawl_by_domain(engine)
        await crawl(engine, "a", "a")
        worker = (await engine.workers.register(name="one")).id

        async def dies(tx: Any) -> None:
            asked: dict[str, Any] = {"instance": None, "queues": None, "types": None, "limit": 1}
            assert len(await claim(tx, engine.ctx, worker=worker, **asked)) == 1
            raise StoreError("the process dies")

        with pytest.raises(StoreError):
            await engine.store.write(dies)
        assert await ask(engine, "SELECT * FROM holdfast_limit_units") == []
        assert len(await engine.claim(worker, limit=5)) == 1
    finally:
        await engine.close()
