"""What the database knows of extensions, and how an operator removes one that is no longer installed."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits, Retention
from holdfast.engine.admin.extensions import KnownExtension
from holdfast.engine.maintenance.extension_tasks import Task
from holdfast.engine.reads.missing_extensions import MISSING_SECONDS
from holdfast.errors import Conflict, HookFailed, UnknownName
from holdfast.model import JobType, NewJob
from holdfast.store import open_store
from tests.engine.steps import ask


async def fails(*_: Any) -> None:
    raise ZeroDivisionError


async def follow(*_: Any) -> None: ...


@pytest.fixture
async def app(engine: Engine) -> Engine:
    """`toy` has hooks on `n` and, with `pay`, on `b`; `pay` alone on `p`."""
    for extension, types in {"toy": ["n", "b"], "pay": ["b", "p"]}.items():
        engine.ctx.hooks.effect(extension, ["complete", "prune"], types, follow)
        engine.ctx.hooks.effect(extension, ["cancel"], types, fails)
    await engine.job_types.declare(
        *(JobType(name=name, lifecycle="default") for name in ("n", "b", "p", "plain")), app="shop"
    )
    await engine.maintenance.extension_tasks(
        [Task(extension=name, name="sweep", every=60, function=follow) for name in ("toy", "pay")]
    )
    return engine


@pytest.fixture
async def plain(app: Engine, store_url: str, clock: MovableClock) -> Any:
    """A process that has no extension."""
    other = Engine(await open_store(store_url, clock), clock=clock)
    yield other
    await other.close()


async def needs(engine: Engine) -> dict[str, Any]:
    types = {name: declared.needs for name, declared in (await engine.reads.job_types()).items()}
    return types | {job.id: job.needs for job in (await engine.reads.page()).jobs}


async def test_known_extensions_list_last_seen_job_types_and_waiting_jobs(
    app: Engine, worker: str, clock: MovableClock
) -> None:
    await app.create_many([NewJob(type=name) for name in ("n", "b", "b", "p", "plain")])
    [lease] = await app.claim(worker, types=["n"])
    await app.complete(worker, lease.id, lease.token)
    began = clock.now()
    clock.advance(MISSING_SECONDS)
    await ask(app, "UPDATE holdfast_extensions SET seen_at = {now} WHERE name = 'pay' RETURNING name")
    assert await app.extensions.all() == [
        KnownExtension("pay", True, clock.now(), {"b": ["shop"], "p": ["shop"]}, 3),
        KnownExtension("toy", False, began, {"b": ["shop"], "n": ["shop"]}, 2),
    ]
    await ask(app, "DELETE FROM holdfast_extensions RETURNING name")
    assert [(one.name, one.live, one.seen_at) for one in await app.extensions.all()] == [
        ("pay", False, None),
        ("toy", False, None),
    ]


async def test_an_extension_in_use_or_unknown_cannot_be_forgotten(app: Engine, clock: MovableClock) -> None:
    clock.advance(MISSING_SECONDS - 1)
    for attempt in (app.extensions.forget, app.extensions.require_forgettable):
        with pytest.raises(Conflict, match="a live process has extension 'toy'"):
            await attempt("toy")
        with pytest.raises(UnknownName, match="did you mean 'toy'"):
            await attempt("toys")
    assert (await needs(app))["n"] == ["toy"]


async def test_jobs_no_longer_need_a_forgotten_extension(
    app: Engine, plain: Engine, worker: str, clock: MovableClock
) -> None:
    """Those that wait and those that run; finished ones are pruned. Nothing changes for another extension."""
    jobs = [NewJob(type=name) for name in ("n", "n", "n", "b", "p", "plain")]
    done, runs, waits, both, pays, free = [one.id for one in await app.create_many(jobs)]
    leases = await app.claim(worker, types=["n"], limit=2)
    await app.complete(worker, leases[0].id, leases[0].token)
    for job_id in (waits, pays):
        with pytest.raises(HookFailed):
            await app.cancel(job_id)
    app.ctx.limits = plain.ctx.limits = EngineLimits(sweep_batch=1)
    clock.advance(MISSING_SECONDS)
    forgotten = await plain.extensions.forget("toy", by="alice")
    assert (forgotten.name, forgotten.job_types, forgotten.jobs) == ("toy", ["b", "n"], 3)

    changed = {"n": None, "b": ["pay"], "p": ["pay"], "plain": None, runs: None, waits: None, both: ["pay"]}
    assert await needs(plain) == changed | {done: ["toy"], pays: ["pay"], free: None}
    assert [(one.name, one.seen_at is not None) for one in await plain.extensions.all()] == [("pay", True)]
    assert {row["extension"] for row in await ask(plain, "SELECT extension FROM holdfast_maintenance")} == {"pay"}
    assert {row["extension"] for row in await ask(plain, "SELECT extension FROM holdfast_hook_failures")} == {"pay"}
    [line] = (await plain.audit.page()).lines
    assert (line.actor, line.action, line.subject) == ("alice", "extension.forget", "toy")
    assert line.detail == {"jobTypes": ["b", "n"], "jobs": 3}

    assert (await plain.cancel(waits)).canceled
    await plain.complete(worker, leases[1].id, leases[1].token)
    await plain.create(NewJob(type="n"))
    clock.advance(1000)
    plain.ctx.limits = EngineLimits()
    assert await plain.maintenance.prune(Retention(succeeded=1)) == 2
    with pytest.raises(Conflict, match="pay"):
        await plain.cancel(both)


async def test_an_app_that_starts_with_a_forgotten_extension_requires_it_again(
    app: Engine, plain: Engine, clock: MovableClock
) -> None:
    clock.advance(MISSING_SECONDS)
    await plain.extensions.forget("toy")
    job = await plain.create(NewJob(type="n"))
    await app.job_types.declare(JobType(name="n", lifecycle="default"), app="shop")
    assert (await app.reads.get(job.id)).needs == ["toy"]
