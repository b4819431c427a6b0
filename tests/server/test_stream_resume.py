"""Whoever watches, is cut off at any moment and comes back, to this server or to another, reads the log: all, once.

Six examples of each story in `make test`, the same in every run; 100 in `make soak`, by its seed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from holdfast.engine import Engine, Progress
from holdfast.model import NewJob
from tests.sampling import Sample
from tests.server.event_reader import Said, watching
from tests.server.steps import Served, serving

pytestmark = pytest.mark.sampled
RUNS, SOAK_RUNS = 6, 100
OURS, THEIRS = "default", "them"

Plan = list[tuple[int, str, str]]  # of a writer: how many jobs at once, for whom, and what it does with them then


class Cut(NamedTuple):
    """Read so much from that server, and then be gone; `blocks` counts places and heartbeats too."""

    server: int
    blocks: int


CUTS = st.lists(st.builds(Cut, st.integers(0, 1), st.integers(0, 12)), max_size=8)
WRITERS = st.lists(
    st.lists(
        st.tuples(st.integers(1, 7), st.sampled_from([OURS, THEIRS]), st.sampled_from(["run", "cancel", ""])),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=3,
)


class Ground:
    """Two servers before one database. Their memory is so small that it is always too small."""

    def __init__(self, sample: Sample, runner: asyncio.Runner, servers: list[Served], worker: str) -> None:
        self.sample, self.runner, self.servers, self.worker = sample, runner, servers, worker

    @property
    def engine(self) -> Engine:
        return self.servers[0].engine


@pytest.fixture
def ground(store_url: str, monkeypatch: pytest.MonkeyPatch, sample: Sample) -> Iterator[Ground]:
    monkeypatch.setattr("holdfast.server.live.event_buffer.ENTRIES_MAX", 8)
    monkeypatch.setattr("holdfast.server.live.feed.PULL", 3)
    monkeypatch.setattr("holdfast.server.live.feed.PAGE", 5)
    monkeypatch.setattr("holdfast.server.live.feed.IDLE_SECONDS", 0.02)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin() -> tuple[list[Served], str]:
            starting = [serving(store_url, sse_heartbeat_seconds=0.03) for _ in range(2)]
            servers = [await stack.enter_async_context(each) for each in starting]
            return servers, (await servers[0].engine.workers.register(name="w")).id

        yield Ground(sample, runner, *runner.run(begin()))
        runner.run(stack.aclose())


async def write(ground: Ground, plan: Plan, number: int) -> None:
    engine = ground.servers[number % 2].engine
    for jobs, tenant, then in plan:
        made = await engine.create_many([NewJob(type=f"t{number}", tenant=tenant) for _ in range(jobs)])
        if then == "cancel":
            await engine.cancel(made[0].id)
        elif then == "run":
            for lease in await engine.claim(ground.worker, types=[f"t{number}"], limit=2):
                await engine.complete(ground.worker, lease.id, lease.token)


async def read(
    ground: Ground, path: str, cuts: list[Cut], is_last: Callable[[Said], bool], last: str | None = None
) -> list[Said]:
    """Up to the last event, and cut off on the way as often as there are cuts."""
    found: list[Said] = []
    for server, blocks in [*cuts, Cut(0, 10**6)]:
        async with watching(ground.servers[server], path, last=last) as reader:
            for _ in range(blocks):
                said = await reader.block()
                if said is not None and said.data is not None:
                    found.append(said)
                    if is_last(said):
                        return found
            last = reader.last or last
    raise AssertionError("the last event never came")


async def logged(engine: Engine, first: str, last: str) -> list[tuple[str, int]]:
    """What stands in the log for us between these; other transactions of the database server may hold it back."""
    async with asyncio.timeout(60):
        while True:
            events, _ = await engine.reads.feed(limit=10_000)
            found = [(event.job_id, event.seq) for event in events if event.tenant == OURS]
            if (last, 1) in found:
                return found[found.index((first, 1)) : found.index((last, 1)) + 1]
            await asyncio.sleep(0.02)


def tried(ground: Ground, story: Callable[..., Coroutine[Any, Any, None]], *strategies: st.SearchStrategy[Any]) -> None:
    """The story with many examples, all on the same servers."""
    soak = ground.sample.soak

    @settings(
        max_examples=SOAK_RUNS if soak else RUNS,
        derandomize=not soak,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*strategies))
    def run(example: tuple[Any, ...]) -> None:
        ground.runner.run(story(*example))

    (seed(ground.sample.number)(run) if soak else run)()


def test_all_events_arrive_once_and_in_order_across_disconnects(ground: Ground) -> None:
    """SEC-37, R003-122: no gap and no repeat in the stream of all jobs, with several writers."""

    async def story(writers: list[Plan], cuts: list[Cut]) -> None:
        async with watching(ground.servers[0], "/events") as reader:
            start = (await reader.block()).id
        first = await ground.engine.create(NewJob(type="first"))

        async def write_all() -> str:
            await asyncio.gather(*(write(ground, plan, number) for number, plan in enumerate(writers)))
            return (await ground.engine.create(NewJob(type="last"))).id

        found, last = await asyncio.gather(
            read(ground, "/events", cuts, lambda said: said.data["jobType"] == "last", start), write_all()
        )
        assert [said.event for said in found] == await logged(ground.engine, first.id, last)

    tried(ground, story, WRITERS, CUTS)


def test_the_events_of_a_job_arrive_once_and_in_order_across_disconnects(ground: Ground) -> None:
    """The same in the stream of one job, which replays what was before and ends by itself."""

    async def story(notes: int, cuts: list[Cut]) -> None:
        engine, worker = ground.engine, ground.worker
        job = await engine.create(NewJob(type="noted"))

        async def work() -> None:
            [lease] = await engine.claim(worker, types=["noted"])
            for percent in range(notes):
                await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=percent))
            await engine.complete(worker, lease.id, lease.token)

        found, _ = await asyncio.gather(
            read(ground, f"/jobs/{job.id}/events", cuts, lambda said: said.name == "complete"), work()
        )
        assert [(said.id, said.data["seq"]) for said in found] == [(str(seq), seq) for seq in range(1, notes + 4)]

    tried(ground, story, st.integers(0, 20), CUTS)
