"""Random histories of jobs with limits on the engine. What may run is checked by plain Python that counts by itself.

After each step: no claim took more units than the limits of that moment allow, nor more tokens than a burst and the
time give; the units in the database are exactly those of the running jobs. At the end every job can be finished.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.errors import HoldfastError
from holdfast.model import Lease, NewJob
from holdfast.model.limits import Limit
from tests.engine.limiting import declare, held_by_jobs
from tests.engine.steps import ask
from tests.model.database import ModelDatabase

T = TypeVar("T")

QUEUES = ("default", "media")
NAMES = ("type:crawl", "type:mail", "queue:default", "gpu", "key:crawl", "key:crawl a")
KEYED = "crawl"
POLL_SECONDS = 5.0
DRAINS_MAX = 600
RUNNING = "SELECT id, lease_token FROM holdfast_jobs WHERE state = 'running'"
UNFINISHED = "SELECT id FROM holdfast_jobs WHERE finished_at IS NULL"
SLACK = 1e-4  # of tokens: times are rounded to microseconds

jobs = st.builds(
    dict,
    type=st.sampled_from((KEYED, KEYED, "mail")),
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from((0, 0, 5, -5)),
    delay_seconds=st.sampled_from((None, None, None, 20)),
    payload=st.builds(dict, domain=st.sampled_from("aabc"), customer=st.sampled_from("xy")),
    limits=st.sampled_from(({}, {"gpu": 1}, {"gpu": 2}, {"gpu": 9})),
)
limits = st.one_of(
    st.builds(Limit, st.integers(0, 3)),
    st.builds(Limit, st.just(None), st.sampled_from((0.05, 0.5, 3.0)), st.sampled_from((1.0, 2.5, 4.0))),
    st.builds(Limit, st.integers(1, 3), st.sampled_from((0.5, 3.0)), st.sampled_from((1.0, 4.0))),
)
picks = st.integers(0, 1 << 12)


@dataclass
class Spent:
    """The tokens that a bucket has, if every claim since the limit was set has been counted."""

    tokens: float
    at: float

    def take(self, limit: Limit, now: float, units: float) -> None:
        assert limit.rate is not None
        assert limit.burst is not None
        self.tokens = min(limit.burst, self.tokens + limit.rate * max(0.0, now - self.at)) - units
        self.at = max(self.at, now)


@dataclass
class Job:
    """What a job takes; `lease` while it runs."""

    id: str
    type: str
    queue: str
    key: str | None
    units: dict[str, int]
    lease: Lease | None = None
    worker: str = ""

    def buckets(self, limits: dict[str, Limit]) -> dict[str, tuple[Limit, int]]:
        wanted = {f"type:{self.type}": 1, f"queue:{self.queue}": 1} | self.units
        taken = {name: (limits[name], units) for name, units in wanted.items() if name in limits}
        own = f"key:{self.type} {self.key}"
        of_key = limits.get(own) or limits.get(f"key:{self.type}")
        return taken | ({own: (of_key, 1)} if self.key and of_key else {})


@dataclass
class Counted:
    """What runs, and the tokens that were spent."""

    limits: dict[str, Limit] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)

    def used(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for job in self.jobs.values():
            for bucket, (_, units) in job.buckets(self.limits).items() if job.lease else ():
                held[bucket] += units
        return held

    def claimed(self, leases: list[Lease], worker: str, now: float) -> None:
        for lease in leases:
            job = self.jobs[lease.id]
            assert job.lease is None, "a job that runs was claimed"
            job.lease, job.worker = lease, worker
        used = self.used()
        for job in (self.jobs[lease.id] for lease in leases):
            for bucket, (limit, units) in job.buckets(self.limits).items():
                if limit.concurrency is not None:
                    assert used[bucket] <= limit.concurrency, f"{used[bucket]} units of {bucket}, which has {limit}"
                if limit.rate is not None and limit.burst is not None:
                    left = self.spent.setdefault(bucket, Spent(limit.burst, now))
                    left.take(limit, now, min(units, limit.burst))
                    assert left.tokens >= -SLACK * (1 + limit.rate), f"{bucket} has {left.tokens} tokens, {limit}"

    def changed(self, name: str, limit: Limit | None) -> None:
        """A new limit begins with all its tokens."""
        if limit is None:
            self.limits.pop(name, None)
        else:
            self.limits[name] = limit
        for bucket in [each for each in self.spent if each.startswith(name)]:
            del self.spent[bucket]


class EngineUnderLimits(RuleBasedStateMachine):
    database: ModelDatabase
    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.run(self.database.restart())
        self.engine, self.clock = self.database.engine, self.database.clock
        self.counted = Counted()
        self.sound = True
        self.workers = [self.run(self.engine.workers.register(name=name)).id for name in ("one", "two", "three")]
        self.run(
            declare(self.engine, KEYED, limit_key="domain", fairness_key="customer", policy={"backoff_base_seconds": 0})
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def now(self) -> float:
        return self.clock.now().timestamp()

    def running(self, pick: int) -> Job | None:
        held = [job for job in self.counted.jobs.values() if job.lease]
        return held[pick % len(held)] if held else None

    # -- steps ------------------------------------------------------------------------------------------------------

    @initialize(first=st.lists(jobs, min_size=3, max_size=9), bound=limits)
    def begin(self, first: list[dict[str, Any]], bound: Limit) -> None:
        self.change("key:crawl", bound)
        for job in first:
            self.create(job, 1)

    @rule(job=jobs, count=st.sampled_from((1, 1, 2, 5)))
    def create(self, job: dict[str, Any], count: int) -> None:
        made = self.run(self.engine.create_many([NewJob(**job) for _ in range(count)]))
        key = job["payload"]["domain"] if job["type"] == KEYED else None
        for one in made:
            self.counted.jobs[one.id] = Job(one.id, job["type"], job["queue"], key, job["limits"])
        self.check()

    @rule(pick=picks, most=st.sampled_from((1, 1, 2, 5, 20)), queues=st.sampled_from((None, None, ["media"])))
    def claim(self, pick: int, most: int, queues: list[str] | None) -> None:
        worker = self.workers[pick % len(self.workers)]
        self.refresh()
        self.sound = False
        self.counted.claimed(self.run(self.engine.claim(worker, limit=most, queues=queues)), worker, self.now)
        self.check()

    @rule(pick=picks)
    def claim_once(self, pick: int) -> None:
        worker = self.workers[pick % len(self.workers)]
        self.refresh()
        found = self.run(self.engine.claim_once(worker, f"request {len(self.counted.jobs)} {pick}", limit=1 + pick % 3))
        self.counted.claimed(
            [lease for lease in found or () if not self.counted.jobs[lease.id].lease], worker, self.now
        )
        self.check()

    @rule(pick=picks, how=st.sampled_from(("complete", "complete", "fail", "bury", "release", "snooze", "cancel")))
    def end(self, pick: int, how: str) -> None:
        job = self.running(pick)
        if job is None or job.lease is None:
            return
        token = job.lease.token
        match how:
            case "complete":
                work: Any = self.engine.complete(job.worker, job.id, token)
            case "fail" | "bury":
                work = self.engine.fail(job.worker, job.id, token, "E", permanent=how == "bury", retry_after_seconds=0)
            case "cancel":
                self.run(self.engine.cancel(job.id))
                work = self.engine.fail(job.worker, job.id, token, "E")
            case _:
                work = self.engine.release(job.worker, job.id, token, delay_seconds=9 if how == "snooze" else 0)
        self.try_to(work)
        self.check()

    @rule(pick=picks)
    def cancel_waiting(self, pick: int) -> None:
        waiting = [job for job in self.counted.jobs.values() if not job.lease]
        if waiting:
            self.try_to(self.engine.cancel(waiting[pick % len(waiting)].id))
            self.check()

    @rule(seconds=st.sampled_from((0.1, 1, 7, 25, 40)))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def reap(self) -> None:
        for _ in range(3):
            self.clock.advance(15)
            self.run(self.engine.maintenance.reap())
        self.run(self.engine.maintenance.requeue_due())
        self.check()

    @rule(name=st.sampled_from(NAMES), limit=st.one_of(limits, limits, st.none()))
    def change(self, name: str, limit: Limit | None) -> None:
        if limit is None and name not in self.counted.limits:
            return
        self.run(self.engine.job_limits.set(name, limit, by="olga"))
        self.counted.changed(name, limit)
        self.check()

    @rule()
    def prune_tokens(self) -> None:
        self.run(self.engine.job_limits.prune_tokens())

    # -- checks -----------------------------------------------------------------------------------------------------

    def try_to(self, work: Coroutine[Any, Any, Any]) -> None:
        """A lease may be lost, a job may be over: then nothing changes."""

        async def tried() -> None:
            try:
                await work
            except HoldfastError as error:
                if error.code not in ("lease_lost", "already_final"):
                    raise

        self.run(tried())

    def refresh(self) -> None:
        """A claim may first reap what has expired: those jobs may be claimed again in the same call."""
        self.run(self.engine.maintenance.requeue_due())
        self.run(self.engine.maintenance.reap())
        self.check()

    def check(self) -> None:
        self.sound = False
        tokens = {row["id"]: row["lease_token"] for row in self.run(ask(self.engine, RUNNING))}
        for job in self.counted.jobs.values():
            if job.lease is not None and tokens.get(job.id) != job.lease.token:
                job.lease = None
        held = self.run(held_by_jobs(self.engine))
        assert held == self.counted.used(), f"the engine counts {held}, the model {self.counted.used()}"
        self.sound = True

    def teardown(self) -> None:
        """Every job ends, by claims and completions alone, once the limits allow it."""
        if not self.sound:  # the step that failed has more to say
            return
        for name in list(self.counted.limits):
            limit = self.counted.limits[name]
            if limit.concurrency == 0 or (name == "gpu" and (limit.concurrency or 9) < 9):
                self.change(name, None)
        left: list[Any] = []
        for _ in range(DRAINS_MAX):
            for job in [job for job in self.counted.jobs.values() if job.lease]:
                assert job.lease
                self.try_to(self.engine.complete(job.worker, job.id, job.lease.token))
            self.check()
            found = self.run(self.engine.claim(self.workers[0], limit=3))
            self.counted.claimed(found, self.workers[0], self.now)
            if not found:
                if not (left := self.run(ask(self.engine, UNFINISHED))):
                    break
                self.clock.advance(POLL_SECONDS)
        assert not left, f"{len(left)} jobs are never claimed"
