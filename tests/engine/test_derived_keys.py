"""Keys that a guard derives from requests: a double click is one job, also across a minute boundary."""

import asyncio
from datetime import UTC, datetime

import pytest

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.hooks.create import CreateRequest
from holdfast.errors import Invalid
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.settings import Settings
from holdfast.store import Tx
from tests.engine.hooking import adopt, guard
from tests.engine.steps import ask

EDGE = datetime(2026, 1, 5, 12, 0, 59, tzinfo=UTC)  # a second before the next minute


def image(prompt: str = "a red fox", **more: object) -> NewJob:
    payload = {"user": "ada", "prompt": prompt}
    return NewJob(type="image", lifecycle="generation", payload=payload, **more)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(EDGE)


@pytest.fixture
async def asked(engine: Engine) -> list[str]:
    """What the guard behind the one that derives the key has been asked about: a quota, say."""
    seen: list[str] = []

    @guard(engine, "create", job_type="image")
    async def derive(_tx: Tx, request: CreateRequest) -> None:
        request.derive_key(request.job.payload["user"], request.job.payload["prompt"])

    @guard(engine, "create", job_type="image")
    async def charge(_tx: Tx, request: CreateRequest) -> None:
        seen.append(request.job.payload["prompt"])

    await adopt(engine, "image")
    return seen


async def test_a_double_click_across_a_minute_boundary_is_one_job(
    engine: Engine, clock: MovableClock, asked: list[str]
) -> None:
    """R004-11, R004-27, R004-29, C-18: the minute is a window that also matches the minute before."""
    first = await engine.create(image())
    clock.advance(2)
    again = await engine.create(image(" a red  fox"))
    assert (again.id, again.existed) == (first.id, True)
    assert asked == ["a red fox"], "charged once"
    assert not (await engine.create(image("a blue fox"))).existed

    clock.advance(118)
    assert not (await engine.create(image())).existed


async def test_concurrent_equal_requests_are_one_job(engine: Engine, asked: list[str]) -> None:
    """R004-29."""
    made = await asyncio.gather(*(engine.create(image()) for _ in range(5)))
    many = await engine.create_many([image(), image("other"), image("other")])
    assert len({one.id for one in (*made, many[0])}) == 1
    assert many[1].id == many[2].id != many[0].id


async def test_a_derived_key_stays_taken_after_rejection_and_is_freed_by_failure(
    engine: Engine, worker: str, asked: list[str]
) -> None:
    """R004-28, C-18."""
    first = await engine.create(image())
    [lease] = await engine.claim(worker)
    await engine.reject(worker, lease.id, lease.token, "SAFE_BLOCK")
    again = await engine.create(image())
    assert (again.id, again.state) == (first.id, State.REJECTED)

    other = await engine.create(image("other"))
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "E_PROVIDER", permanent=True)
    assert (await engine.create(image("other"))).id != other.id


async def test_an_explicit_key_wins_over_a_derived_one(engine: Engine, clock: MovableClock, asked: list[str]) -> None:
    """R004-27: an explicit key lasts as long as the lifecycle says."""
    first = await engine.create(image(idempotency_key="click-1"))
    clock.advance(3600)
    assert (await engine.create(image(idempotency_key="click-1"))).id == first.id
    assert (await engine.create(image(idempotency_key="click-2"))).id != first.id
    [row] = await ask(engine, "SELECT idempotency_key FROM holdfast_jobs WHERE id = :id", id=first.id)
    assert row["idempotency_key"] == "click-1"


async def test_an_app_derives_the_key_of_a_call_from_its_subject(store_url: str, engine: Engine) -> None:
    """R004-27: `options(key_from=...)`, for apps without a guard."""
    app = App(settings=Settings(database_url=store_url))

    @app.job()
    async def draw(prompt: str, size: int = 512) -> None: ...

    try:
        for_ada = draw.options(key_from="ada")
        first, again = await for_ada.enqueue("fox"), await for_ada.options(priority=3).enqueue("fox ")
        others = [await for_ada.enqueue("hare"), await draw.options(key_from="bob").enqueue("fox")]
        named = await for_ada.options(idempotency_key="mine").enqueue("fox")
        assert (again.id, again.existed) == (first.id, True)
        assert len({first.id, named.id, *(other.id for other in others)}) == 4
        with pytest.raises(Invalid, match="subject"):
            await draw.options(key_from="").enqueue("fox")
    finally:
        await app.close()
