"""Reads: no side effects, always the committed state; pages and feeds that neither skip nor repeat."""

import asyncio
from typing import Any

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Cursor, Engine, Filter, Progress
from holdfast.engine.reads.read import ALL_JOBS
from holdfast.errors import Invalid, NotFound, UnknownName
from holdfast.ids import SeededIds
from holdfast.lifecycle import State
from holdfast.model import Event, NewJob
from holdfast.store import open_store
from tests.engine.steps import UNKNOWN_ID, run, stored


async def pages(engine: Engine, wanted: Filter = ALL_JOBS, *, limit: int = 2) -> list[str]:
    """The ids of all pages, in order."""
    found: list[str] = []
    cursor = None
    while True:
        page = await engine.reads.page(wanted, cursor=cursor, limit=limit)
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        if (cursor := page.next) is None:
            return found


async def test_reading_changes_nothing(engine: Engine, worker: str) -> None:
    """R001-45, R001-54, C-39."""
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    for _ in range(2):
        await engine.reads.get(lease.id)
        await engine.reads.page()
        await engine.reads.counts()
        await engine.reads.history(lease.id)
        await engine.reads.attempts(lease.id)
        await engine.reads.parts(lease.id)
        await engine.reads.why(lease.id)
        await engine.reads.feed()
    assert await stored(engine, lease.id) == before


async def test_a_read_after_a_write_sees_the_write(engine: Engine, worker: str) -> None:
    """S15: never behind one's own writes, and versions never go back."""
    seen = 0
    lease = await run(engine, worker)
    for percent in range(20):
        await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=percent))
        job = await engine.reads.get(lease.id)
        assert (job.percent, job.version > seen) == (percent, True)
        seen = job.version


async def test_a_tenant_sees_only_its_own(engine: Engine) -> None:
    ours = await engine.create(NewJob(type="n", tenant="ours"))
    theirs = await engine.create(NewJob(type="n", tenant="theirs"))

    assert (await engine.reads.get(ours.id, "ours")).tenant == "ours"
    for verb in (engine.reads.get, engine.reads.why):
        with pytest.raises(NotFound):
            await verb(theirs.id, "ours")
    assert await pages(engine, Filter(tenant="ours")) == [ours.id]
    assert await engine.reads.counts(Filter(tenant="theirs")) == [("default", "n", State.QUEUED, 1)]


async def test_pages_are_newest_first_and_stable_while_jobs_arrive(engine: Engine) -> None:
    """The cursor is a place, not a number of rows: nothing is skipped or shown twice, whatever arrives meanwhile."""
    old = [(await engine.create(NewJob(type="n"))).id for _ in range(7)]
    first = await engine.reads.page(limit=3)
    await engine.create_many([NewJob(type="n") for _ in range(5)])
    second = await engine.reads.page(cursor=first.next, limit=3)
    await engine.create_many([NewJob(type="n") for _ in range(5)])
    third = await engine.reads.page(cursor=second.next, limit=3)

    seen = [job.id for page in (first, second, third) for job in page.jobs]
    assert seen == old[::-1]
    assert third.next is None
    assert (await engine.reads.page(limit=17)).next is None, "exactly full is the last one"


async def test_each_filter_finds_the_matching_jobs(engine: Engine, worker: str, clock: MovableClock) -> None:
    start = clock.now()
    a = await engine.create(NewJob(type="a", queue="x", tags=["red", "big"], tenant="t1"))
    clock.advance(10)
    b = await engine.create(NewJob(type="b", queue="y", tags=["red"]))
    clock.advance(10)
    c = await run(engine, worker, type="c", queue="x")
    await engine.fail(worker, c.id, c.token, "E_ODD", permanent=True)
    d = await engine.redrive(c.id)
    middle = (await engine.reads.get(b.id)).created_at

    async def finds(ids: list[str], **fields: Any) -> None:
        wanted = Filter(**fields)
        assert await pages(engine, wanted, limit=1) == ids, fields
        assert sum(number for *_, number in await engine.reads.counts(wanted)) == len(ids), fields

    await finds([d.id, c.id, b.id, a.id])
    await finds([a.id], tenant="t1")
    await finds([d.id, b.id, a.id], states=["queued"])
    await finds([d.id, c.id, b.id, a.id], states=["dead", "queued"])
    await finds([b.id, a.id], types=["a", "b", "z"])
    await finds([d.id, c.id, a.id], queues=["x"])
    await finds([b.id, a.id], tag="red")
    await finds([a.id], tag="big")
    await finds([d.id, c.id, b.id], created_after=middle)
    await finds([a.id], created_before=middle)
    await finds([], created_before=start)
    await finds([c.id], error_code="E_ODD")
    await finds([d.id], redrive_of=c.id)
    await finds([d.id], queues=["x"], states=["queued"], tenant="default")
    await finds([], types=[])


async def test_jobs_are_found_by_the_beginning_of_their_id(engine: Engine) -> None:
    ids = sorted(job.id for job in await engine.create_many([NewJob(type="n")] * 3))
    assert await engine.reads.ids_beginning(ids[1], limit=5) == [ids[1]]
    assert await engine.reads.ids_beginning(ids[0][:8], limit=5) == ids
    assert await engine.reads.ids_beginning(ids[0][:9], limit=2) == ids[:2]
    for no_beginning in ("", "ffff", "0-", f"{ids[0]}0", ids[0][:8] + ids[0][9:]):
        assert await engine.reads.ids_beginning(no_beginning, limit=5) == [], no_beginning


async def test_a_page_with_invalid_arguments_is_rejected(engine: Engine) -> None:
    for wrong in ({"limit": 0}, {"limit": 501}, {"limit": True}, {"cursor": "page 2"}, {"cursor": ""}):
        with pytest.raises(Invalid):
            await engine.reads.page(**wrong)
    with pytest.raises(UnknownName, match="did you mean 'running'"):
        await engine.reads.page(Filter(states=["runing"]))
    for nothing in ({"redrive_of": "no id"}, {"tag": "\x00"}, {"types": [""]}, {"queues": ["\n"]}, {"tenant": ""}):
        for read in (engine.reads.page, engine.reads.counts):
            with pytest.raises(Invalid):
                await read(Filter(**nothing))
    for nowhere in (Cursor(job_id="no id"), Cursor(pos=-1), Cursor(pos=2**63), Cursor(seq=2**31)):
        with pytest.raises(Invalid):
            await engine.reads.feed(nowhere)
    for after in (-1, 2**31):
        with pytest.raises(Invalid):
            await engine.reads.history(UNKNOWN_ID, after=after)


async def test_counts_are_by_queue_type_and_state(engine: Engine, worker: str) -> None:
    await engine.create_many([NewJob(type="a"), NewJob(type="a"), NewJob(type="b", queue="q")])
    await engine.claim(worker, types=["a"])

    assert await engine.reads.counts() == [
        ("default", "a", State.QUEUED, 1),
        ("default", "a", State.RUNNING, 1),
        ("q", "b", State.QUEUED, 1),
    ]


async def test_a_history_is_gapless_and_can_be_read_in_pieces(engine: Engine, worker: str, clock: MovableClock) -> None:
    """S12, R002-46, R002-49: numbers 1..n, the version of the row is n, each move once, in order."""
    lease = await run(engine, worker)
    for n in range(5):
        clock.advance(1)
        await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=n))
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)
    [lease] = await engine.claim(worker)
    await engine.complete(worker, lease.id, lease.token)

    history = await engine.reads.history(lease.id)
    assert [event.seq for event in history] == list(range(1, (await engine.reads.get(lease.id)).version + 1))
    assert [e.verb for e in history] == ["create", "claim", *["progress"] * 5, "fail", "claim", "complete"]
    pairs = [(event.from_state, event.to_state) for event in history if event.to_state]
    assert [to for _, to in pairs][:-1] == [source for source, _ in pairs][1:], "each starts where the last one ended"
    assert [event.at for event in history] == sorted(event.at for event in history)
    assert await engine.reads.history(lease.id, after=3, limit=2) == history[3:5]
    assert await engine.reads.history(UNKNOWN_ID) == await engine.reads.history("no id at all") == []
    assert await engine.reads.attempts(UNKNOWN_ID) == await engine.reads.attempts("no id at all") == []
    assert await engine.reads.parts(UNKNOWN_ID) == []


# -- the feed ---------------------------------------------------------------------------------------------------------


async def follow(engine: Engine, after: Cursor | None = None, *, limit: int = 3) -> tuple[list[Event], Cursor]:
    """Read on until nothing more is there."""
    seen: list[Event] = []
    cursor = after or Cursor()
    while True:
        events, cursor = await engine.reads.feed(cursor, limit=limit)
        if not events:
            return seen, cursor
        seen += events


async def until(engine: Engine, number: int, after: Cursor | None = None) -> tuple[list[Event], Cursor]:
    """Other transactions of the same server may hold the feed back for a moment, though never for long."""
    seen, cursor = await follow(engine, after)
    for _ in range(5000):
        if len(seen) >= number:
            break
        more, cursor = await follow(engine, cursor)
        seen += more
    return seen, cursor


async def test_the_feed_shows_every_event_of_every_job_once(engine: Engine, worker: str) -> None:
    """S12: however small the pieces; each job's events in order."""
    await engine.create_many([NewJob(type="n") for _ in range(5)])
    for lease in await engine.claim(worker, limit=5):
        await engine.complete(worker, lease.id, lease.token)

    seen, cursor = await until(engine, 15)

    histories = [event for job in (await engine.reads.page()).jobs for event in await engine.reads.history(job.id)]
    assert len(seen) == len(histories) == 15
    assert sorted((e.job_id, e.seq) for e in seen) == sorted((e.job_id, e.seq) for e in histories)
    for job in (await engine.reads.page()).jobs:
        assert [e.seq for e in seen if e.job_id == job.id] == [1, 2, 3]
    later = await engine.create(NewJob(type="n"))
    more, _ = await until(engine, 1, cursor)
    assert [(e.job_id, e.seq) for e in more] == [(later.id, 1)]


async def test_the_feed_can_be_followed_while_it_grows(engine: Engine, worker: str) -> None:
    """L13: a reader that resumes from its cursor gets exactly the rest, under concurrent writers."""

    async def write(n: int) -> None:
        for _ in range(5):
            await engine.create(NewJob(type=f"type-{n}"))

    seen: list[Event] = []
    cursor = Cursor()
    writers = asyncio.gather(*(write(n) for n in range(6)))
    while not writers.done():
        events, cursor = await engine.reads.feed(cursor, limit=4)
        seen += events
    await writers
    rest, _ = await until(engine, 30 - len(seen), cursor)

    keys = [(event.job_id, event.seq) for event in seen + rest]
    assert len(keys) == len(set(keys)) == 30


async def test_a_reader_that_starts_at_the_feed_end_sees_only_later_events(engine: Engine) -> None:
    assert await engine.reads.feed_end() == Cursor()
    await engine.create(NewJob(type="before"))
    _, cursor = await until(engine, 1)
    assert await engine.reads.feed_end() == cursor
    after = await engine.create(NewJob(type="after"))
    seen, _ = await until(engine, 1, cursor)
    assert [event.job_id for event in seen] == [after.id]


async def test_a_transaction_that_commits_late_is_not_skipped(fresh_postgres_url: str, clock: MovableClock) -> None:
    """An older transaction commits after a newer one was read: the reader waits for it instead of passing it by."""
    ids = SeededIds(2)
    engine = Engine(await open_store(fresh_postgres_url, clock, ids), clock=clock, ids=ids)
    connection = await asyncpg.connect(fresh_postgres_url)
    try:
        await engine.create(NewJob(type="before"))
        _, cursor = await until(engine, 1)
        slow = connection.transaction()
        await slow.start()
        [late] = await engine.create_many([NewJob(type="late")], connection=connection)
        early = await engine.create(NewJob(type="early"))

        assert await follow(engine, cursor) == ([], cursor), "a later event waits behind an open transaction"
        assert await engine.reads.feed_end() == cursor, "and a reader that starts now does not skip it"
        await slow.commit()

        seen, _ = await until(engine, 2, cursor)
        assert sorted((e.job_id, e.seq) for e in seen) == sorted([(late.id, 1), (early.id, 1)])
        assert seen[0].job_id == late.id
    finally:
        await connection.close()
        await engine.close()


# -- attempts ---------------------------------------------------------------------------------------------------------


async def test_each_claim_that_has_ended_is_one_attempt_whatever_the_job_did_besides(
    engine: Engine, worker: str
) -> None:
    """It reports progress, waits, is queued again by hand, is asked to cancel, and is running again."""
    lease = await run(engine, worker)
    beside = await run(engine, worker)
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, step="one"))
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=60)
    await engine.requeue(lease.id)
    [again] = await engine.claim(worker)
    await engine.progress(worker, Progress(id=again.id, token=again.token, step="two"))
    await engine.cancel(again.id)
    await engine.release(worker, again.id, again.token)
    await engine.complete(worker, beside.id, beside.token)
    found = [(attempt.epoch, attempt.token, attempt.outcome) for attempt in await engine.reads.attempts(lease.id)]
    assert found == [(1, lease.token, "failed"), (2, again.token, "canceled")]
    assert [attempt.token for attempt in await engine.reads.attempts(beside.id)] == [beside.token]
