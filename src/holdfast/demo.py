"""`make run`: four jobs, two workers and a crash, told step by step on a throw-away SQLite database.

Time is moved by hand, so that waiting takes no time.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.assembly import open_engine
from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.ids import SeededIds
from holdfast.lifecycle import Actor, Machine, State
from holdfast.model import Event, Lease, NewJob
from holdfast.settings import Settings
from holdfast.store.migrate import sqlite_path

READ_NEXT = """
That was one engine on one SQLite file; on PostgreSQL it is the same code and another URL.

Read next:
  README.md             use it from Python, on SQLite and on PostgreSQL
  docs/lifecycles.md    the states and moves of each lifecycle, and how to declare your own
  ARCHITECTURE.md       how it works, on one page
"""


@dataclass
class Stage:
    """Where the story is played: an engine, the time, and the names of those who appear in it."""

    engine: Engine
    clock: MovableClock
    file: Path
    workers: dict[str, str] = field(default_factory=dict)

    async def create(self, name: str, **fields: Any) -> str:
        return (await self.engine.create(NewJob(type=name, **fields))).id

    async def register(self, name: str) -> str:
        worker = (await self.engine.register(name=name)).id
        self.workers[worker] = name
        return worker

    async def take(self, worker: str, name: str) -> Lease:
        [lease] = await self.engine.claim(worker, types=[name])
        show(f"{self.workers[worker]} holds {name!r}, attempt {lease.attempt} of {lease.max_attempts}")
        return lease

    async def show_job(self, job_id: str) -> None:
        job = await self.engine.get(job_id)
        show(f"{job.type!r} is {self.machine(job.lifecycle).words[job.state]!r}")

    def machine(self, lifecycle: str) -> Machine:
        return self.engine.rules.lifecycles[lifecycle]


def say(sentence: str) -> None:
    print(f"\n{sentence}")


def show(line: str) -> None:
    print(f"    {line}")


async def tell(stage: Stage) -> None:
    anna, bert = await stage.register("anna"), await stage.register("bert")
    invoice = await finish_one(stage, anna)
    page = await fail_one(stage, anna)
    letter = await cancel_one(stage)
    video = await lose_one(stage, anna, bert)
    await retry(stage, page, bert)
    move_by_hand(stage, invoice)
    await show_histories(stage, [invoice, page, letter, video])


async def finish_one(stage: Stage, worker: str) -> str:
    say("A client hands in a job. It is on disk before its id is answered.")
    job = await stage.create("send-invoice", payload={"order": 4711})
    await stage.show_job(job)
    say("A worker claims it. The lease lasts 30 seconds, and a fresh token proves whose it is.")
    lease = await stage.take(worker, "send-invoice")
    say("The worker completes it with a result, under that token.")
    stage.clock.advance(4)
    await stage.engine.complete(worker, lease.id, lease.token, {"sent": True})
    await stage.show_job(job)
    return job


async def fail_one(stage: Stage, worker: str) -> str:
    say(
        "A job of the lifecycle 'crawl' fails. Its error code is a transient one, so it is tried again after a backoff."
    )
    job = await stage.create("crawl-page", lifecycle="crawl", payload={"url": "https://example.com"})
    lease = await stage.take(worker, "crawl-page")
    await stage.engine.fail(worker, lease.id, lease.token, "E_TIMEOUT", "the origin did not answer")
    await stage.show_job(job)
    say("Why does it not run now? The claim's conditions, one by one:")
    for clause in await stage.engine.why(job):
        show(f"{'yes' if clause.holds else 'NO':3}  {clause.name:8}  {clause.says}")
    return job


async def cancel_one(stage: Stage) -> str:
    say("A client changes its mind about a job that nobody runs yet: it is canceled at once.")
    job = await stage.create("send-letter", delay_seconds=3600)
    await stage.engine.cancel(job, reason="changed my mind")
    await stage.show_job(job)
    return job


async def lose_one(stage: Stage, crashed: str, other: str) -> str:
    say("A worker claims a job and goes silent: a crash, a long pause, a broken network.")
    job = await stage.create("cut-video")
    lost = await stage.take(crashed, "cut-video")
    say("31 seconds later the lease has run out. A sweep, which any process may run, sets the job free.")
    stage.clock.advance(31)
    await stage.engine.reap()
    await stage.show_job(job)
    lease = await stage.take(other, "cut-video")
    say("The first worker wakes up and wants to complete it. Its token is not current any more: refused.")
    try:
        await stage.engine.complete(crashed, lost.id, lost.token, {"cut": "too late"})
    except LeaseLost as refused:
        show(f"{refused.code}: {refused}")
    await stage.engine.complete(other, lease.id, lease.token, {"cut": "in time"})
    await stage.show_job(job)
    return job


async def retry(stage: Stage, job: str, worker: str) -> None:
    say("Meanwhile the backoff of the failed job is over: another worker claims it, and this time it succeeds.")
    lease = await stage.take(worker, "crawl-page")
    await stage.engine.complete(worker, lease.id, lease.token)
    await stage.show_job(job)


def move_by_hand(stage: Stage, job: str) -> None:
    typed = "update jobs set state = 'running' where id = ?"
    say("Somebody opens the database with another program, and tries to run the finished job once more:")
    show(f"sql> {typed}")
    with closing(sqlite3.connect(stage.file)) as connection:
        try:
            connection.execute(typed, (job,))
        except sqlite3.Error as refused:
            show(f"the database says: {refused}")


async def show_histories(stage: Stage, jobs: list[str]) -> None:
    say("Every move was recorded in the transaction that made it. The histories, in each lifecycle's own words:")
    for job_id in jobs:
        job = await stage.engine.get(job_id)
        words = stage.machine(job.lifecycle).words
        print(f"\n    {job.type} ({job.lifecycle})")
        for event in await stage.engine.history(job_id):
            show(f"  {_line(event, words, stage.workers)}".rstrip())


def _line(event: Event, words: dict[State, str], workers: dict[str, str]) -> str:
    source = words[State(event.from_state)] if event.from_state else ""
    target = words[State(event.to_state)] if event.to_state else ""
    who = workers[str(event.worker_id)] if event.actor == Actor.WORKER else event.actor
    return f"{event.at:%H:%M:%S}  {event.verb:8}  {source:>13} -> {target:13}  {who:6}  {event.reason or ''}"


async def play() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        settings, clock = Settings(database_url=f"sqlite:///{folder}/jobs.db"), MovableClock()
        engine = await open_engine(settings, clock=clock, ids=SeededIds(3))
        try:
            await tell(Stage(engine, clock, sqlite_path(settings.url)))
        finally:
            await engine.close()
    print(READ_NEXT, end="", flush=True)


def main() -> int:
    try:
        asyncio.run(play())
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has gone: say no more, not even when Python closes the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (HoldfastError, OSError) as error:
        print(f"the demonstration could not go on: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
