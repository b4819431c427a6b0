"""The admin route for autoscalers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.model import NewJob
from tests.server.admin_client import Operator, operator, retrying, started, with_key
from tests.server.steps import Served, serving

IDLE = {"oldestWaitSeconds": 0.0, "backlog": 0, "later": 0, "busySlots": 0, "slotsWanted": 0}
FIGURES_LAST_SECONDS = 11
ASKED_MAX = 50


@pytest.fixture
async def served(store_url: str, clock: MovableClock) -> AsyncIterator[Served]:
    async with serving(store_url, clock=clock, startup_grace_seconds=0) as served:
        yield served


async def counted(served: Served, clock: MovableClock, **query: str) -> Any:
    """Counted after this was asked: somebody else may be about it, and then there are the old figures meanwhile."""
    asked_at = await counted_at(operator(served))
    for _ in range(ASKED_MAX):
        clock.advance(FIGURES_LAST_SECONDS)
        answer = await operator(served).get("/scale", **query)
        if answer["countedAt"] > asked_at:
            return answer
    raise AssertionError(f"the figures are still those of {asked_at}")


async def counted_at(asking: Operator) -> str:
    return (await asking.get("/scale"))["countedAt"]


async def queue_up(engine: Engine, queue: str, jobs: int, **more: Any) -> None:
    await engine.create_many([NewJob(type="render", queue=queue, **more) for _ in range(jobs)])


async def test_scale_returns_waiting_and_running_jobs_by_queue(served: Served, clock: MovableClock) -> None:
    """Issue 5: oldest wait, backlog and busy slots per queue."""
    engine = served.engine
    await retrying(engine, queue="mail")
    await started(engine, queue="mail")
    await queue_up(engine, "mail", 3)
    await queue_up(engine, "mail", 2, delay_seconds=86_400)
    await queue_up(engine, "films", 1)
    answer = await counted(served, clock)

    mail, films = answer["queues"]["mail"], answer["queues"]["films"]
    assert mail.pop("oldestWaitSeconds") >= FIGURES_LAST_SECONDS
    assert mail == {"backlog": 3, "later": 3, "busySlots": 1, "slotsWanted": 4}
    assert films.pop("oldestWaitSeconds") >= FIGURES_LAST_SECONDS
    assert films == {"backlog": 1, "later": 0, "busySlots": 0, "slotsWanted": 1}
    assert answer["total"].pop("oldestWaitSeconds") >= FIGURES_LAST_SECONDS
    assert answer["total"] == {"backlog": 4, "later": 3, "busySlots": 1, "slotsWanted": 5}


async def test_the_total_covers_the_requested_queues(served: Served, clock: MovableClock) -> None:
    for queue, jobs in {"mail": 3, "films": 2, "mail.eu": 4, "a b": 5}.items():
        await queue_up(served.engine, queue, jobs)
    assert (await counted(served, clock, queue="mail"))["total"]["backlog"] == 3
    assert (await operator(served).get("/scale", queue="mail,films"))["total"]["backlog"] == 5
    assert list((await operator(served).get("/scale", queue="mail,films"))["queues"]) == ["mail", "films"]
    assert (await operator(served).get("/scale", queue="mail.eu"))["total"]["backlog"] == 4
    assert (await operator(served).get("/scale", queue="a b"))["queues"]["a b"]["backlog"] == 5
    assert (await operator(served).get("/scale", queue="mail,mail"))["total"]["backlog"] == 3, (
        "named twice, counted once"
    )
    assert (await operator(served).get("/scale"))["total"]["backlog"] == 14


async def test_an_unknown_queue_needs_no_workers(served: Served) -> None:
    """An autoscaler takes an error for a reason to do nothing, also when the first job comes."""
    answer = await operator(served).get("/scale", queue="tomorrow")
    assert answer["queues"] == {"tomorrow": IDLE}
    assert answer["total"] == IDLE


async def test_the_jobs_of_all_tenants_are_added(served: Served, clock: MovableClock) -> None:
    await queue_up(served.engine, "mail", 2, tenant="acme")
    await queue_up(served.engine, "mail", 3, tenant="bravo")
    assert (await counted(served, clock))["queues"]["mail"]["backlog"] == 5


async def test_finished_jobs_are_not_counted(served: Served, clock: MovableClock) -> None:
    worker, lease = await started(served.engine, queue="mail")
    assert (await counted(served, clock, queue="mail"))["total"]["busySlots"] == 1
    await served.engine.complete(worker, lease.id, lease.token)
    answer = await counted(served, clock)
    assert answer["total"] == IDLE
    assert answer["queues"] == {}


async def test_scale_returns_the_slots_of_live_workers(served: Served, clock: MovableClock) -> None:
    await served.engine.workers.register(slots=8)
    disabled = await served.engine.workers.register(slots=4)
    await served.engine.workers.disable(disabled.id)
    assert (await counted(served, clock))["slots"] == 8


async def test_an_invalid_queue_name_is_rejected(served: Served) -> None:
    for listed in ("", "mail,", " mail", "a\nb", "x" * 201):
        refused = await operator(served).get("/scale", queue=listed, status=422)
        assert refused["code"] == "invalid_field"


async def test_before_the_first_count_scale_is_503_instead_of_zero(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros would let an autoscaler stop workers that are needed."""
    from holdfast.engine.reads import queue_stats

    async def nobody_has(*_: Any) -> queue_stats.QueueStats:
        return queue_stats.QueueStats()

    monkeypatch.setattr(queue_stats, "queue_stats", nobody_has)
    assert (await operator(served).get("/scale", status=503))["code"] == "not_ready"


async def test_a_read_only_key_is_sufficient(served: Served) -> None:
    """What KEDA carries should open nothing else."""
    reader = await with_key(served, "admin:read")
    assert (await reader.get("/scale", queue="mail"))["total"] == IDLE
    await reader.post("/queues/mail/pause", status=403)
