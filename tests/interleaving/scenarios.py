"""The verbs that meet, the scene they meet in, and what must be true whatever the order was."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.clock import MovableClock
from holdfast.engine import Complete, Engine, Fail, HeldLease, Progress, Release, Settled
from holdfast.engine.cancel import Canceling, cancel
from holdfast.engine.claim import claim
from holdfast.engine.complete import complete
from holdfast.engine.fail import fail
from holdfast.engine.heartbeat import heartbeat
from holdfast.engine.maintenance.reap import reap
from holdfast.engine.progress import progress
from holdfast.engine.release import release
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.lifecycle import FINAL, Lifecycles, State
from holdfast.model import Lease, NewJob
from holdfast.model.reports import Advanced, Beat
from holdfast.store import Tx
from tests.interleaving.scheduler import Scheduler, Verb

UNDER_A_LEASE = ("heartbeat", "progress", "complete", "fail", "release")
VERBS = ("claim", *UNDER_A_LEASE, "cancel", "reap")
MACHINE = Lifecycles()["default"]

# What a verb answers that found the job in other hands: it did nothing, as if it had not been asked.
NOTHING = {"claim": (), "reap": (), "cancel": "job_contended"}

LOOK = """
SELECT id::text, state, attempt, epoch, failures, lost, version, cancel_requested_at IS NOT NULL AS cancel_requested,
       lease_expires_at,
       (SELECT json_agg(json_build_array(seq, verb, from_state, to_state, epoch) ORDER BY seq)
          FROM holdfast_events WHERE job_id = holdfast_jobs.id) AS events,
       (SELECT coalesce(json_agg(json_build_array(epoch, outcome, to_state) ORDER BY epoch), '[]')
          FROM holdfast_attempts WHERE job_id = holdfast_jobs.id) AS attempts
  FROM holdfast_jobs
 WHERE finished_at IS NULL OR id = ANY ($1::uuid[])
 ORDER BY priority DESC
"""

# Everything of the story before is over and out of the way; nothing has been swept for a little more than an interval.
CLEAR = """
UPDATE holdfast_jobs
   SET state = 'canceled', moved_by = 'system', due = NULL, lease_expires_at = NULL, finished_at = updated_at
 WHERE finished_at IS NULL
"""
SWEPT = """
INSERT INTO holdfast_sweeps (name, swept_at) VALUES ('reap', $1::timestamptz - interval '12 seconds')
    ON CONFLICT (name) DO UPDATE SET swept_at = excluded.swept_at, grace_until = NULL
"""


@dataclass
class Stage:
    """One database, one engine, two workers who want jobs, and one who holds the job that everything is about."""

    engine: Engine
    clock: MovableClock
    watcher: Any
    scheduler: Scheduler
    holder: str
    takers: tuple[str, str]

    async def all_orders(self, first: str, second: str, *, job: str = "held") -> int:
        """Play every order of two verbs, judge each, and say how many there were."""
        scene = Scene(self, (first, second), job)
        serial = [await scene.in_turn(0, 1), await scene.in_turn(1, 0)]
        alone = [await scene.in_turn(0), await scene.in_turn(1)]
        orders = 0
        async for steps in self.scheduler.every_order(scene.set):
            orders += 1
            outcome = await scene.outcome()
            assert outcome in serial or outcome in alone, f"{steps}\ngave {outcome}\nbut in turn they give {serial}"
            assert job != "lost" or scene.stale_words_were_refused(), f"a lost lease was good enough in {steps}"
            await scene.refuses_the_old_token()
        return orders


class Scene:
    """A job that is `queued`, `held` under a lease that has just run out, or `lost` by its holder and to be had again.

    Beside it a claim finds a second, less urgent job.
    """

    def __init__(self, stage: Stage, pair: tuple[str, str], job: str) -> None:
        self.stage, self.pair, self.kind = stage, pair, job

    async def set(self) -> tuple[Verb, Verb]:
        engine, clock = self.stage.engine, self.stage.clock
        await self.stage.watcher.execute(CLEAR)
        self.token = ""
        self.job = (await engine.create(NewJob(type="story", priority=1))).id
        self.names = {self.job: "job"}
        if self.kind != "queued":
            [lease] = await engine.claim(self.stage.holder)
            self.token = lease.token
            clock.advance(31)
        await self.stage.watcher.execute(SWEPT, clock.now())
        if self.kind == "lost":
            await engine.maintenance.reap()
        if "claim" in self.pair:
            self.names[(await engine.create(NewJob(type="story"))).id] = "other"
        self.answers: list[Any] = [None, None]
        return self._verb(0), self._verb(1)

    async def in_turn(self, *order: int) -> tuple[Any, ...]:
        """The outcome when one verb ends before the other begins; or when one is asked, and the other does nothing."""
        verbs = await self.set()
        for place in order:
            await self.stage.engine.store.write(_caught(verbs[place]))
        for place in {0, 1} - set(order):
            self.answers[place] = NOTHING.get(self.pair[place], "never")
        return await self.outcome()

    def _verb(self, place: int) -> Verb:
        """The verb as the engine runs it; its answer is kept in words that do not depend on ids."""
        run = ASKED[self.pair[place]]

        async def verb(tx: Tx) -> Any:
            try:
                answer = await run(self, tx, self.stage.takers[place])
            except HoldfastError as error:
                self.answers[place] = error.code
                raise
            self.answers[place] = self._in_words(answer)
            return answer

        return verb

    def _in_words(self, answer: Any) -> Any:
        match answer:
            case Settled() | Canceling():
                return answer.state.value
            case LeaseLost():
                return answer.code
            case Advanced():
                return "cancel" if answer.cancel_requested else "go on"
            case Beat():
                return tuple(self.names[job] for job in answer.lost), tuple(self.names[job] for job in answer.cancel)
            case Lease():
                return self.names[answer.id], answer.epoch
            case [Settled() | Advanced() | LeaseLost()]:
                return self._in_words(answer[0])
            case list():
                return tuple(self._in_words(each) for each in answer)
            case _:  # a row of reap
                return self.names[answer["id"]], answer["state"]

    async def outcome(self) -> tuple[Any, ...]:
        """What both were told, and what is true of the jobs now; judged on the way."""
        rows = await self.stage.watcher.fetch(LOOK, list(self.names))
        return (*self.answers, *(self._judged(row) for row in rows))

    def _judged(self, row: Any) -> tuple[Any, ...]:
        """One history, one owner, one end (S3 to S7, S12)."""
        events, attempts = json.loads(row["events"]), json.loads(row["attempts"])
        assert [seq for seq, *_ in events] == list(range(1, row["version"] + 1)), "versions and events differ"
        state = None
        for _, verb, source, target, _ in events:
            assert state not in FINAL, "something happened after the end"
            if target is not None:
                assert source == state, f"{verb} left {source}, but the job was {state}"
                assert verb == "create" or MACHINE.move(verb, State(source), State(target)), f"illegal {verb}"
                state = target
        assert row["state"] == state, "the row and its history differ"
        claims = [epoch for _, verb, _, _, epoch in events if verb == "claim"]
        assert claims == list(range(1, row["epoch"] + 1)), "epochs have a gap or repeat"
        running = state == State.RUNNING
        assert [epoch for epoch, *_ in attempts] == claims[: len(claims) - running], (
            "an execution did not end just once"
        )
        assert (row["lease_expires_at"] is not None) == running, "an owner of a job that does not run"
        told = [event[1:] for event in events]
        counts = tuple(row[name] for name in ("state", "attempt", "failures", "lost", "cancel_requested"))
        return self.names[row["id"]], counts, told, attempts

    def stale_words_were_refused(self) -> bool:
        told = [answer for verb, answer in zip(self.pair, self.answers, strict=True) if verb in UNDER_A_LEASE]
        return all(answer in ("lease_lost", (("job",), ())) for answer in told)

    async def refuses_the_old_token(self) -> None:
        """Once the lease is gone, its token opens nothing, whoever has the job now (S4)."""
        if not self.token:
            return
        before = await self.stage.engine.reads.get(self.job)
        if before.lease_token == self.token:
            return
        [answer] = await self.stage.engine.complete_many(self.stage.holder, [Complete(self.job, self.token, "stale")])
        assert isinstance(answer, LeaseLost), "a lost lease was good enough afterwards"
        assert await self.stage.engine.reads.get(self.job) == before


def _caught(verb: Verb) -> Verb:
    async def work(tx: Tx) -> Any:
        try:
            return await verb(tx)
        except HoldfastError as error:
            return error

    return work


# How each verb is asked: by the holder with its token, by a taker, or by the system.
ASKED: dict[str, Callable[[Scene, Tx, str], Awaitable[Any]]] = {
    "claim": lambda scene, tx, taker: claim(
        tx, scene.stage.engine.ctx, worker=taker, instance=None, queues=None, types=None, limit=1
    ),
    "heartbeat": lambda scene, tx, _: heartbeat(
        tx, worker=scene.stage.holder, leases=[HeldLease(scene.job, scene.token)]
    ),
    "progress": lambda scene, tx, _: progress(
        tx, scene.stage.engine.ctx, scene.stage.holder, [Progress(id=scene.job, token=scene.token, step="on")]
    ),
    "complete": lambda scene, tx, _: complete(
        tx, scene.stage.engine.ctx, scene.stage.holder, [Complete(scene.job, scene.token, "done")]
    ),
    "fail": lambda scene, tx, _: fail(
        tx,
        scene.stage.engine.ctx,
        scene.stage.holder,
        [Fail(id=scene.job, token=scene.token, code="E_ANY", retry_after_seconds=0)],
    ),
    "release": lambda scene, tx, _: release(
        tx, scene.stage.engine.ctx, scene.stage.holder, [Release(scene.job, scene.token)]
    ),
    "cancel": lambda scene, tx, _: cancel(tx, scene.stage.engine.ctx, scene.job),
    "reap": lambda scene, tx, _: reap(tx, scene.stage.engine.ctx),
}
