"""A stream that cannot go on from where its client was says so, instead of being silent."""

from holdfast.engine import Cursor, Engine, Retention
from holdfast.model import NewJob
from holdfast.server.live.sse import parse_position, position_text
from tests.engine.log import settled
from tests.engine.steps import ask
from tests.server.event_reader import watching
from tests.server.steps import Served

AT_ONCE = Retention(succeeded=0, dead=0, canceled=0, rejected=0)


async def place_now(served: Served) -> str:
    async with watching(served, "/events") as reader:
        said = await reader.block()
    assert said is not None
    assert said.id is not None
    return said.id


async def test_a_last_event_id_ahead_of_the_log_resets_the_stream(served: Served) -> None:
    pos, job, seq = parse_position(await place_now(served))
    ahead = position_text(Cursor(pos + 10**6, job, seq))
    async with watching(served, "/events", last=ahead) as reader:
        said = await reader.next()
        assert said is not None
        assert (said.name, said.data) == ("reset", {"reason": "ahead"})
        job_id = (await served.engine.create(NewJob(type="t"))).id
        said = await reader.next()
        assert said is not None
        assert said.event == (job_id, 1)


async def test_a_client_whose_next_events_were_pruned_is_told_about_the_gap(served: Served) -> None:
    before = await place_now(served)
    gone = await served.engine.create(NewJob(type="t"))
    await served.engine.cancel(gone.id)
    await served.engine.maintenance.prune(AT_ONCE)
    left = await served.engine.create(NewJob(type="t"))
    await settled(served.engine)
    async with watching(served, "/events", last=before) as reader:
        said = await reader.next()
        assert said is not None
        assert (said.name, said.id, said.data) == ("reset", before, {"reason": "pruned"})
        said = await reader.next()
        assert said is not None
        assert said.event == (left.id, 1)
    async with watching(served, "/events", last=said.id) as reader:
        first = await reader.block()
        assert first is not None
        assert first.name is None, "nothing is missing behind it"


async def test_a_last_event_id_ahead_of_the_job_replays_the_job(served: Served) -> None:
    job = await served.engine.create(NewJob(type="t"))
    async with watching(served, f"/jobs/{job.id}/events", last="7") as reader:
        said = [await reader.next(), await reader.next()]
        assert [(each.name, each.id) for each in said if each] == [("reset", "0"), ("create", "1")]


async def test_an_open_stream_is_reset_when_the_database_was_restored(served: Served) -> None:
    async with watching(served, "/events") as reader:
        await served.engine.create(NewJob(type="t"))
        assert await reader.next() is not None
        await go_back(served.engine)
        for changed in served.engine.store.identity.on_change:
            changed()
        said = await reader.next()
        assert said is not None
        assert (said.name, said.data) == ("reset", {"reason": "ahead"})


async def go_back(engine: Engine) -> None:
    """As if a backup had been restored."""
    await settled(engine)
    if engine.store.dialect == "postgres":
        await ask(engine, "UPDATE holdfast_event_log SET base = base - 1000000 RETURNING base")
    else:
        await ask(engine, "DELETE FROM holdfast_events RETURNING pos")
        await ask(engine, "UPDATE sqlite_sequence SET seq = -2 WHERE name = 'holdfast_events' RETURNING seq")
