"""A heartbeat returns the fleet: how many processes live, the position among them, and whether any holds a job."""

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
    """The number in the answer to a heartbeat, equal to the one in the health report of a server."""
    seen = (await told(engine, worker)).live
    assert (await engine.reads.health()).maintaining == seen
    return seen


async def test_a_heartbeat_returns_the_number_of_live_processes_and_its_position(
    engine: Engine, fleet: list[str]
) -> None:
    assert [await told(engine, worker) for worker in fleet] == [Fleet(3, place, busy=False) for place in range(3)]


async def test_a_newly_registered_worker_counts_as_live(engine: Engine, fleet: list[str]) -> None:
    await engine.workers.register()
    assert await live(engine, fleet[0]) == 4


async def test_a_worker_that_reported_offline_does_not_count_as_live(engine: Engine, fleet: list[str]) -> None:
    first, *_, last = fleet
    await engine.heartbeat(first, [], liveness=Liveness.OFFLINE)
    assert await live(engine, last) == 2
    assert (await told(engine, last)).place == 1


async def test_a_worker_silent_for_half_of_its_offline_time_does_not_count_as_live(
    engine: Engine, fleet: list[str], clock: MovableClock
) -> None:
    """K22: it need not be marked offline first."""
    clock.advance(44)
    assert await live(engine, fleet[0]) == 3
    clock.advance(1)
    assert await live(engine, fleet[0]) == 1
    clock.advance(3600)
    assert await live(engine, fleet[0]) == 1


async def test_a_disabled_worker_still_takes_part_in_maintenance(engine: Engine, fleet: list[str]) -> None:
    await engine.workers.disable(fleet[1])
    assert await live(engine, fleet[0]) == 3


@pytest.mark.parametrize("kind", ["remote", "local"])
async def test_an_http_worker_takes_no_part_in_maintenance(engine: Engine, fleet: list[str], kind: str) -> None:
    """Also one that registers as local: its key shows that it is remote."""
    remote, _ = await engine.workers.register_with_key(NewWorker(kind=kind))
    await engine.heartbeat(remote.id, [])
    assert await live(engine, fleet[0]) == 3


async def test_a_worker_of_another_kind_takes_no_part_in_maintenance(engine: Engine, fleet: list[str]) -> None:
    await engine.workers.register(kind="batch")
    assert await live(engine, fleet[0]) == 3


async def test_the_fleet_is_busy_while_a_process_with_an_instance_name_holds_a_job(
    engine: Engine, fleet: list[str]
) -> None:
    mine, other, _ = fleet
    await run(engine, other)
    assert not (await told(engine, mine)).busy, "a process without an instance name cannot be watched"
    lease = await run(engine, other, instance="a")
    assert (await told(engine, mine)).busy
    await engine.complete(other, lease.id, lease.token)
    assert not (await told(engine, mine)).busy


async def test_a_heartbeat_without_leases_is_one_statement(
    engine: Engine, fleet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without BEGIN and COMMIT: idle workers send little else."""
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
