"""How much of each limit is in use: counted with the queue statistics, in few names for any number of keys."""

import msgspec
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.reads.limit_use import LimitUse, limit_use
from holdfast.engine.reads.queue_stats import NAMES_MAX, QueueStats, most_used
from holdfast.model import NewJob
from holdfast.model.limits import Limit
from tests.engine.limiting import crawl, crawl_by_domain, declare, lift, limit

OLD = 11.0  # seconds after which figures are no longer shown


async def use(engine: Engine, limit: int = 100) -> dict[str, LimitUse]:
    return await engine.store.read(lambda tx: limit_use(tx, limit=limit))


async def test_without_limits_nothing_is_in_use(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="n"))
    await engine.claim(worker)
    assert await use(engine) == {}


async def test_the_units_that_running_jobs_hold_are_counted(engine: Engine, worker: str) -> None:
    await limit(engine, "gpu", concurrency=6)
    await limit(engine, "type:train", concurrency=2)
    await limit(engine, "queue:mail", concurrency=3)
    await engine.create_many([NewJob(type="train", limits={"gpu": 2})] * 3)
    assert len(await engine.claim(worker, limit=9)) == 2
    assert list((await use(engine)).items()) == [
        ("gpu", LimitUse(used=4, concurrency=6)),
        ("type:train", LimitUse(used=2, concurrency=2, full=1)),
        ("queue:mail", LimitUse(concurrency=3)),
    ], "first those of which most is in use"
    assert [*await use(engine, limit=2)] == ["gpu", "queue:mail"], "the first by name"


async def test_a_concurrency_of_0_is_full(engine: Engine) -> None:
    await limit(engine, "gpu", concurrency=0)
    assert await use(engine) == {"gpu": LimitUse(concurrency=0, full=1)}


async def test_a_rate_shows_the_tokens_that_are_left(engine: Engine, worker: str, clock: MovableClock) -> None:
    await limit(engine, "type:n", rate="2/s", burst=5)
    assert await use(engine) == {"type:n": LimitUse(rate=2.0, tokens=5.0)}
    await engine.create_many([NewJob(type="n")] * 4)
    await engine.claim(worker, limit=9)
    clock.advance(1)
    await limit(engine, "type:m", rate="1/s", burst=9)
    assert await use(engine) == {
        "type:n": LimitUse(used=4, rate=2.0, tokens=3.0),
        "type:m": LimitUse(rate=1.0, tokens=9.0),
    }


async def test_all_keys_of_a_type_are_one_limit(engine: Engine, worker: str) -> None:
    """With its own limit, b is not full, and z is."""
    await crawl_by_domain(engine, 2)
    await limit(engine, "key:crawl b", concurrency=3)
    await limit(engine, "key:crawl z z", concurrency=1)
    await limit(engine, "key:crawler a", concurrency=9)
    await crawl(engine, *"aaabbcd", "z z")
    assert len(await engine.claim(worker, limit=20)) == 7
    assert await use(engine) == {
        "key:crawl": LimitUse(used=7, concurrency=2, full=2),
        "key:crawler": LimitUse(),
    }


async def test_a_rate_of_each_key_shows_no_tokens(engine: Engine, worker: str) -> None:
    await declare(engine, per_key=Limit.of(rate="1/s"), limit_key="domain")
    await crawl(engine, *"ab")
    assert len(await engine.claim(worker, limit=9)) == 2
    assert await use(engine) == {"key:crawl": LimitUse(used=2, rate=1.0)}


async def test_limits_of_single_keys_need_no_limit_of_each_key(engine: Engine, worker: str) -> None:
    await declare(engine, limit_key="domain")
    await limit(engine, "key:crawl a", concurrency=1)
    await crawl(engine, *"aab")
    assert len(await engine.claim(worker, limit=9)) == 2
    assert await use(engine) == {"key:crawl": LimitUse(used=1, full=1)}


async def test_a_lifted_limit_is_not_shown(engine: Engine, worker: str) -> None:
    """Also if jobs that run still hold its units, and if it stays because an app declares it."""
    await declare(engine, "n", limit=Limit(4))
    await limit(engine, "gpu", concurrency=4)
    await engine.create(NewJob(type="n", limits={"gpu": 1}))
    await engine.claim(worker)
    await lift(engine, "gpu")
    await lift(engine, "type:n")
    assert await use(engine) == {}
    await limit(engine, "queue:mail", rate=1)
    assert await use(engine) == {"queue:mail": LimitUse(rate=1.0, tokens=1.0)}


async def test_limits_are_counted_with_the_queue_statistics(engine: Engine, worker: str, clock: MovableClock) -> None:
    """At most once in ten seconds; and no tenant is named."""
    await limit(engine, "gpu", concurrency=1)
    for tenant in ("acme", "other"):
        await limit(engine, f"tenant:{tenant}", concurrency=1)
        await engine.create(NewJob(type="n", tenant=tenant))
    await engine.claim(worker, limit=9)
    expected = {"tenant:*": LimitUse(used=2, full=2), "gpu": LimitUse(concurrency=1)}
    assert (await engine.reads.queue_stats()).limits == expected
    await lift(engine, "gpu")
    assert (await engine.reads.queue_stats()).limits == expected
    clock.advance(OLD)
    assert [*(await engine.reads.queue_stats()).limits] == ["tenant:*"]


@pytest.mark.parametrize("few", [0, 1])
def test_limits_beyond_the_most_used_are_added_up(few: int) -> None:
    limits = {f"name {n:04}": LimitUse(used=n, concurrency=n, rate=1.0, full=1) for n in range(NAMES_MAX + few)}
    shown = most_used(NAMES_MAX, limits)
    assert len(shown) == NAMES_MAX + few
    assert next(iter(shown)) == f"name {NAMES_MAX + few - 1:04}"
    assert shown.get("other") == (LimitUse(used=0, full=1) if few else None)
    assert most_used(NAMES_MAX, shown | {"last": LimitUse()})["other"].used == 0


def test_figures_of_an_older_version_have_no_limits() -> None:
    assert msgspec.json.decode(b'{"queues": {}}', type=QueueStats).limits == {}
