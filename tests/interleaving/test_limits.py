"""Claims, ends, new jobs and changes of a limit that meet at one key, statement by statement, on real PostgreSQL.

Whatever the order: never more jobs than the limit, units for exactly the running jobs, and every job is claimed in the
end, without maintenance. A claim has so many statements that `make test` plays random orders, `make soak` more of them.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.engine import Complete, Release
from holdfast.engine.admin.limits import set_limit
from holdfast.engine.cancel import cancel
from holdfast.engine.claim import claim
from holdfast.engine.complete import complete
from holdfast.engine.create import create
from holdfast.engine.release import release
from holdfast.lifecycle import Actor
from holdfast.model import Lease, NewJob
from holdfast.model.limits import Limit
from holdfast.store import Tx
from tests.engine.limiting import crawl_by_domain, drain, held_by_jobs
from tests.interleaving.scenarios import CLEAR, Stage
from tests.interleaving.scheduler import Verb
from tests.sampling import Sample

pytestmark = pytest.mark.slow
PLAYS, SOAK_PLAYS = 20, 500
TABLES = ("limits", "limit_units", "limit_tokens", "key_lanes")


def job(domain: str = "a", **about: Any) -> NewJob:
    return NewJob(type="crawl", payload={"domain": domain}, **about)


@dataclass
class KeyScene:
    """One job of the key runs and two wait, one of them in a lane of its own if `apart`; a claim has found it full,
    unless it has just become full. `full`: the one that runs has not ended yet."""

    stage: Stage
    pair: tuple[str, str]
    limited: bool = True
    apart: bool = False
    tried: bool = True
    full: bool = True
    held: Lease | None = None
    waiting: str = ""

    async def set(self) -> tuple[Verb, Verb]:
        engine, watcher = self.stage.engine, self.stage.watcher
        await watcher.execute(CLEAR)
        for table in TABLES:
            await watcher.execute(f"DELETE FROM holdfast_{table}")
        if self.limited:
            await engine.job_limits.set("key:crawl", Limit(1), by="olga")
        await engine.create(job())
        [self.held] = await engine.claim(self.stage.holder)
        self.waiting = (await engine.create(job())).id
        await engine.create(job(queue="apart" if self.apart else None))
        if self.limited and self.tried:
            assert await engine.claim(self.stage.holder, limit=5) == []
        if not self.full:
            await engine.complete(self.stage.holder, self.held.id, self.held.token)
        return self._verb(0), self._verb(1)

    def _verb(self, place: int) -> Verb:
        run, worker = ASKED[self.pair[place]], self.stage.takers[place]

        async def verb(tx: Tx) -> Any:
            return await run(self, tx, worker)

        return verb

    async def judge(self) -> None:
        """Before and after all jobs have been claimed; a job that is held is completed by whoever drains."""
        engine = self.stage.engine
        if set(self.pair) == {"set", "claim"}:  # a claim that began before counts when the limit is set again
            await engine.job_limits.set("key:crawl", Limit(1), by="olga")
        held = await held_by_jobs(engine)
        most = max(int(name[-1]) if name.startswith("raise") else 1 for name in self.pair)
        assert not self.limited or held.total() <= most, f"{held} of {most}"
        await self._fill(most - held.total())
        rows = await self.stage.watcher.fetch(
            "SELECT id::text, lease_token::text, lease_worker::text FROM holdfast_jobs WHERE state = 'running'"
        )
        for row in rows:
            await engine.complete(row["lease_worker"], row["id"], row["lease_token"])
        await drain(engine, self.stage.holder, at_once=3)
        left = await self.stage.watcher.fetchval("SELECT count(*) FROM holdfast_jobs WHERE finished_at IS NULL")
        assert left == 0, "a job is due, its key has units, and no claim finds it"
        assert await held_by_jobs(engine) == {}

    async def _fill(self, room: int) -> None:
        """If the key has units and jobs, the next claim takes them. After maintenance at the latest, if they are in
        another lane than the job that ended, or if the limit was raised while a claim found it full."""
        engine, watcher = self.stage.engine, self.stage.watcher
        due = await watcher.fetchval("SELECT count(*) FROM holdfast_jobs WHERE due")
        wanted = min(due, room) if self.limited and "drop" not in self.pair else 0
        found = len(await engine.claim(self.stage.holder, limit=5)) if wanted > 0 else 0
        if found < wanted and (self.apart or "raise to 2" in self.pair):
            await engine.job_limits.open_full_lanes()
            found += len(await engine.claim(self.stage.holder, limit=5))
        assert found >= wanted, f"{found} claimed of {due} that are due, the key has room for {room}"


def _claim(scene: KeyScene, tx: Tx, worker: str) -> Awaitable[Any]:
    return claim(tx, scene.stage.engine.ctx, worker=worker, instance=None, queues=None, types=None, limit=2)


def _lease(scene: KeyScene) -> tuple[str, str]:
    assert scene.held
    return scene.held.id, scene.held.token


ASKED: dict[str, Callable[[KeyScene, Tx, str], Awaitable[Any]]] = {
    "claim": _claim,
    "complete": lambda scene, tx, _: complete(
        tx, scene.stage.engine.ctx, scene.stage.holder, [Complete(*_lease(scene), "done")]
    ),
    "release": lambda scene, tx, _: release(tx, scene.stage.engine.ctx, scene.stage.holder, [Release(*_lease(scene))]),
    "enqueue": lambda scene, tx, _: create(tx, scene.stage.engine.ctx, [job()], actor=Actor.CLIENT, accept=True),
    "cancel": lambda scene, tx, _: cancel(tx, scene.stage.engine.ctx, scene.waiting),
    "set": lambda _, tx, __: set_limit(tx, "key:crawl", Limit(1), by="olga"),
    "raise to 2": lambda _, tx, __: set_limit(tx, "key:crawl", Limit(2), by="olga"),
    "drop": lambda _, tx, __: set_limit(tx, "key:crawl", None, by="olga"),
}


@pytest.fixture
async def keyed(stage: Stage) -> Stage:
    """A limit for each key that only the tests set."""
    await crawl_by_domain(stage.engine)
    await stage.watcher.execute("UPDATE holdfast_limits SET declared = NULL")
    return stage


async def play(scene: KeyScene, sample: Sample) -> None:
    plays = SOAK_PLAYS if sample.soak else PLAYS
    chance = random.Random(f"{sample.seed} {scene.pair}")
    async for steps in scene.stage.scheduler.some_orders(scene.set, chance, plays):
        try:
            await scene.judge()
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), "after", *steps])) from error


@pytest.mark.sampled(5)
@pytest.mark.parametrize("apart", [False, True], ids=["one lane", "two lanes"])
@pytest.mark.parametrize("tried", [False, True], ids=["just full", "known to be full"])
@pytest.mark.parametrize("other", ["claim", "complete", "release", "enqueue", "cancel", "raise to 2", "drop"])
async def test_a_claim_beside_another_verb_keeps_the_limit_and_loses_no_job(
    keyed: Stage, sample: Sample, other: str, tried: bool, apart: bool
) -> None:
    await play(KeyScene(keyed, ("claim", other), tried=tried, apart=apart), sample)


@pytest.mark.parametrize("apart", [False, True], ids=["one lane", "two lanes"])
@pytest.mark.parametrize("other", ["claim", "enqueue", "cancel"])
async def test_a_free_unit_goes_to_one_claim(keyed: Stage, sample: Sample, other: str, apart: bool) -> None:
    await play(KeyScene(keyed, ("claim", other), full=False, apart=apart), sample)


@pytest.mark.parametrize("other", ["complete", "release", "claim"])
async def test_a_limit_that_is_set_counts_exactly_the_jobs_that_run(keyed: Stage, sample: Sample, other: str) -> None:
    """A job that starts or ends while the limit is set is counted if it runs, and only then."""
    await play(KeyScene(keyed, ("set", other), limited=False), sample)
