"""A claim takes from the only lane with jobs without reading the lanes, and only while it is the only one."""

from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.model import NewJob


@pytest.fixture
def asked(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the queries, in their order."""
    transaction, names = engine.store.transaction_class, list[str]()
    original = transaction.all

    async def noted(self: Any, query: Any, **params: Any) -> Any:
        names.append(query.name)
        return await original(self, query, **params)

    monkeypatch.setattr(transaction, "all", noted)
    return names


async def claimed(engine: Engine, worker: str, asked: list[str], limit: int = 1) -> tuple[list[str], list[str]]:
    asked.clear()
    leases = await engine.claim(worker, limit=limit, at_once=True)
    return [lease.id for lease in leases], list(asked)


async def test_the_second_claim_does_not_read_the_lanes(engine: Engine, worker: str, asked: list[str]) -> None:
    ids = [job.id for job in await engine.create_many([NewJob(type="t") for _ in range(5)])]
    assert await claimed(engine, worker, asked) == (ids[:1], ["open_lanes", "claim_jobs"])
    assert await claimed(engine, worker, asked, limit=2) == (ids[1:3], ["claim_jobs"])
    assert await claimed(engine, worker, asked, limit=9) == (ids[3:], ["claim_jobs"])


async def test_an_urgent_job_of_another_lane_is_not_hidden(engine: Engine, worker: str, asked: list[str]) -> None:
    ids = [job.id for job in await engine.create_many([NewJob(type="t") for _ in range(3)])]
    await engine.claim(worker)
    for other in (NewJob(type="other", priority=5), NewJob(type="t", tenant="another")):
        urgent = await engine.create(other)
        found, names = await claimed(engine, worker, asked, limit=2)
        assert urgent.id in found
        assert names[:2] == ["claim_jobs", "open_lanes"]
    assert ids[0] not in found


async def test_a_paused_queue_and_a_disabled_worker_get_nothing(engine: Engine, worker: str, asked: list[str]) -> None:
    await engine.create_many([NewJob(type="t") for _ in range(3)])
    await engine.claim(worker)
    await engine.queues.pause("default")
    assert (await claimed(engine, worker, asked))[0] == []
    await engine.queues.resume("default")
    await engine.claim(worker)
    await engine.workers.disable(worker)
    with pytest.raises(Exception, match="disabled"):
        await engine.claim(worker)


async def test_other_scopes_of_the_same_worker_are_kept_apart(engine: Engine, worker: str) -> None:
    await engine.create_many([NewJob(type="t") for _ in range(3)])
    assert await engine.claim(worker, types=["t"])
    assert await engine.claim(worker, types=["u"]) == []
    assert await engine.claim(worker, queues=["other"]) == []


async def test_the_lanes_are_read_again_after_a_while(
    engine: Engine, worker: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker may have registered again meanwhile, with other capabilities."""
    monkeypatch.setattr("holdfast.engine.lane_scope.UNREAD_SECONDS", 0.0)
    await engine.create_many([NewJob(type="t") for _ in range(3)])
    await engine.claim(worker)
    assert (await claimed(engine, worker, asked))[1] == ["open_lanes", "claim_jobs"]
