"""A beat tells a process with whom it takes turns: who lives, its place among them, and whether anybody holds a job."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, NewWorker
from holdfast.model import Liveness
from holdfast.model.reports import Fleet
from tests.engine.steps import held, run


@pytest.fixture
async def fleet(engine: Engine) -> list[str]:
    """Three worker processes, by their ids."""
    workers = sorted([(await engine.workers.register()).id for _ in range(3)])
    for worker in workers:
        await engine.heartbeat(worker, [])
    return workers


async def told(engine: Engine, worker: str) -> Fleet:
    return (await engine.heartbeat(worker, [])).fleet


async def live(engine: Engine, worker: str) -> int:
    """As a worker is told, and as a server sees it."""
    seen = (await told(engine, worker)).live
    assert (await engine.reads.health()).maintaining == seen
    return seen


async def test_each_is_told_how_many_live_and_its_place_among_them(engine: Engine, fleet: list[str]) -> None:
    assert [await told(engine, worker) for worker in fleet] == [Fleet(3, place, busy=False) for place in range(3)]


async def test_one_that_has_just_registered_counts(engine: Engine, fleet: list[str]) -> None:
    await engine.workers.register()
    assert await live(engine, fleet[0]) == 4


async def test_one_that_said_goodbye_counts_no_more(engine: Engine, fleet: list[str]) -> None:
    first, *_, last = fleet
    await engine.heartbeat(first, [], liveness=Liveness.OFFLINE)
    assert await live(engine, last) == 2
    assert (await told(engine, last)).place == 1


async def test_one_that_is_silent_for_half_of_its_offline_time_counts_no_more(
    engine: Engine, fleet: list[str], clock: MovableClock
) -> None:
    """K22: nobody has to find out first that it is offline."""
    clock.advance(44)
    assert await live(engine, fleet[0]) == 3
    clock.advance(1)
    assert await live(engine, fleet[0]) == 1
    clock.advance(3600)
    assert await live(engine, fleet[0]) == 1


async def test_one_that_an_operator_switched_off_still_keeps_things_in_order(engine: Engine, fleet: list[str]) -> None:
    await engine.workers.disable(fleet[1])
    assert await live(engine, fleet[0]) == 3


@pytest.mark.parametrize("kind", ["remote", "local"])
async def test_whoever_speaks_over_http_takes_no_turns(engine: Engine, fleet: list[str], kind: str) -> None:
    """Also one that calls itself local: its key tells."""
    remote, _ = await engine.workers.register_with_key(NewWorker(kind=kind))
    await engine.heartbeat(remote.id, [])
    assert await live(engine, fleet[0]) == 3


async def test_one_that_calls_itself_something_else_takes_no_turns(engine: Engine, fleet: list[str]) -> None:
    await engine.workers.register(kind="batch")
    assert await live(engine, fleet[0]) == 3


async def test_a_fleet_is_busy_while_a_process_that_can_be_watched_holds_a_job(
    engine: Engine, fleet: list[str]
) -> None:
    mine, other, _ = fleet
    await run(engine, other)
    assert not (await told(engine, mine)).busy, "nobody can watch a process that has no name"
    lease = await run(engine, other, instance="a")
    assert (await told(engine, mine)).busy
    await engine.complete(other, lease.id, lease.token)
    assert not (await told(engine, mine)).busy


async def test_a_beat_that_renews_nothing_is_one_statement(
    engine: Engine, fleet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without BEGIN and COMMIT: of all that idle workers send, this is most."""
    lease = await run(engine, fleet[0])
    alone: list[bool] = []
    write: Callable[..., Awaitable[Any]] = engine.store.write

    async def watched(work: Any, **options: Any) -> Any:
        alone.append(options["alone"])
        return await write(work, **options)

    monkeypatch.setattr(engine.store, "write", watched)
    await engine.heartbeat(fleet[0], [])
    await engine.heartbeat(fleet[0], [held(lease)])
    assert alone == [True, False]
