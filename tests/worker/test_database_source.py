"""How an idle worker polls: a hint makes it poll, and the result says when to poll again."""

from collections.abc import AsyncIterator

import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.store import open_store
from holdfast.worker.sources.database import POLL_SECONDS, DatabaseSource


class ScriptedPresence:
    """Returns the given hints and records how long each wait was to last."""

    instance = "scripted"

    def __init__(self, *hints: bool, exact: bool, clock: MovableClock | None = None) -> None:
        self.hints, self.exact, self.asked = list(hints), exact, list[float]()
        self.clock = clock  # moved by each wait

    @property
    def names(self) -> set[str]:
        return {self.instance}

    async def wait(self, seconds: float) -> bool:
        self.asked.append(seconds)
        if self.clock is not None:
            self.clock.advance(seconds)
        return self.hints.pop(0) if self.hints else False


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    """In real time."""
    engine = Engine(await open_store(store_url))
    yield engine
    await engine.close()


async def long_idle(engine: Engine, presence: ScriptedPresence) -> DatabaseSource:
    source = DatabaseSource(engine, presence, Clock(), worker=(await engine.workers.register()).id)
    for _ in range(8):
        assert await source.claim(1, queues=None, types=None) == []
    return source


@pytest.mark.parametrize("exact", [True, False])
async def test_after_a_hint_for_a_delayed_job_the_source_polls_when_it_is_due(engine: Engine, exact: bool) -> None:
    presence = ScriptedPresence(True, exact=exact)
    source = await long_idle(engine, presence)
    await engine.create(NewJob(type="later", delay_seconds=1))
    if exact:
        assert await source.wait(60), "worth a claim, whatever it finds"
        assert await source.claim(1, queues=None, types=None) == []
    assert await source.wait(60)
    assert presence.asked[0] == POLL_SECONDS, "nothing was going on"
    assert max(presence.asked[1:]) <= 1, "and then never longer than until the job is due"
    assert len(await source.claim(1, queues=None, types=None)) == 1


async def test_an_idle_source_polls_at_growing_intervals(engine: Engine) -> None:
    clock = MovableClock()
    presence = ScriptedPresence(exact=True, clock=clock)
    source = DatabaseSource(engine, presence, clock, worker=(await engine.workers.register()).id)
    assert not await source.wait(4 * POLL_SECONDS)
    *full, _ = presence.asked  # the last wait is what was left of the time
    assert len(full) > 3
    assert full == sorted(full)
    assert full[0] < full[-1] <= POLL_SECONDS
