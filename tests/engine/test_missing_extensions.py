"""Extensions that jobs need and that no live process has."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.reads import missing_extensions as module
from holdfast.engine.reads.missing_extensions import MISSING_SECONDS, needed, sentences
from holdfast.model import JobType, NewJob
from tests.engine.hooking import effect
from tests.engine.steps import ask, run


async def follow(*_: Any) -> None: ...


@pytest.fixture(autouse=True)
async def two_extensions(engine: Engine) -> None:
    """`toy` has an effect on `n`, `pages` on `p`; `plain` needs nothing."""
    effect(engine, "complete", job_type="n")(follow)
    engine.ctx.hooks.effect("pages", ["complete"], ["p"], follow)
    await engine.job_types.declare(*(JobType(name=name, lifecycle="default") for name in ("n", "p", "plain")))


async def test_an_extension_that_no_process_ever_had_is_missing(engine: Engine, worker: str) -> None:
    assert await engine.reads.missing_extensions() == {}
    await engine.create_many([NewJob(type=name) for name in ("n", "n", "p", "plain")])
    assert await engine.reads.missing_extensions() == {"pages": 1, "toy": 2}
    [lease] = await engine.claim(worker, types=["n"])
    assert await engine.reads.missing_extensions() == {"pages": 1, "toy": 2}
    await engine.complete(worker, lease.id, lease.token)
    assert await engine.reads.missing_extensions() == {"pages": 1, "toy": 1}


async def test_an_extension_is_present_while_a_live_process_reports_it(engine: Engine, clock: MovableClock) -> None:
    await engine.create_many([NewJob(type=name) for name in ("n", "p")])
    await engine.maintenance.extension_tasks([])
    assert await engine.reads.missing_extensions() == {}
    clock.advance(MISSING_SECONDS - 1)
    await ask(engine, "UPDATE holdfast_extensions SET seen_at = {now} WHERE name = 'pages' RETURNING name")
    assert await engine.reads.missing_extensions() == {}
    clock.advance(1)
    assert await engine.reads.missing_extensions() == {"toy": 1}


async def test_an_extension_that_no_job_needs_is_not_missing(engine: Engine, clock: MovableClock) -> None:
    await engine.maintenance.extension_tasks([])
    clock.advance(MISSING_SECONDS)
    assert await engine.reads.missing_extensions() == {}


async def test_jobs_keep_needing_an_extension_that_their_type_no_longer_needs(
    engine: Engine, clock: MovableClock
) -> None:
    await engine.create(NewJob(type="n"))
    await engine.maintenance.extension_tasks([])
    await ask(engine, "UPDATE holdfast_job_types SET needs = NULL WHERE name = 'n' RETURNING name")
    clock.advance(MISSING_SECONDS)
    assert await engine.reads.missing_extensions() == {"toy": 1}


async def test_an_extension_needed_only_to_prune_finished_jobs_is_not_missing_but_needed(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """To delete these: `doctor` says so where their time is over."""
    lease = await run(engine, worker, type="n")
    await engine.complete(worker, lease.id, lease.token)
    await engine.maintenance.extension_tasks([])
    assert await engine.store.read(needed) == []
    clock.advance(MISSING_SECONDS)
    assert await engine.reads.missing_extensions() == {}
    assert await engine.store.read(needed) == ["pages", "toy"]
    await ask(engine, "UPDATE holdfast_job_types SET needs = NULL WHERE name = 'n' RETURNING name")
    assert await engine.store.read(needed) == ["pages"]


async def test_jobs_with_a_missing_extension_are_counted_up_to_a_limit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COUNTED_MAX", 2)
    await engine.create_many([NewJob(type="n") for _ in range(3)])
    found = await engine.reads.missing_extensions()
    assert sentences(found) == ["no live process has extension toy, which 2 or more jobs need"]
