"""`ext.enqueue(tx, ...)`: guards, effects and maintenance create jobs, each in the transaction that it runs in."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.clock import Clock
from holdfast.engine import Filter
from holdfast.engine.hooks.enqueue import LEVELS_MAX
from holdfast.errors import HookFailed, Invalid, JobFailed, Refused, TooMany
from holdfast.extend import CreateRequest, Extension, Tx
from holdfast.ids import Ids
from holdfast.maintenance.maintainer import ExtensionMaintainer
from holdfast.model import Job
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.store.queries import Query
from holdfast.worker.sources import database
from tests.extension.test_job_transactions import entries
from tests.worker.in_process import working


@pytest.fixture
def ext() -> Extension:
    return Extension("notes", package="tests.extension.toy")


@pytest.fixture
async def app(store_url: str, ext: Extension) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url), name="enqueues")
    await migrate(store_url, [ext])
    yield app
    await app.close()


async def jobs_of(app: App, job_type: str) -> list[Job]:
    page = await (await app.engine()).reads.page(Filter(types=[job_type]))
    return [await (await app.engine()).reads.get(job.id) for job in page.jobs]


async def maintained(app: App, ext: Extension) -> None:
    """Run the maintenance functions of the extension once."""
    engine = await app.engine()
    maintainer = ExtensionMaintainer(engine, Clock(), Ids(), ext.tasks)
    await maintainer.round()  # records the tasks
    await maintainer.round()


# -- maintenance --------------------------------------------------------------------------------------------------


async def test_an_idle_worker_starts_a_job_of_maintenance_at_once(
    app: App, ext: Extension, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Woken by the commit: it polls every two minutes."""
    for name in ("POLL_FIRST_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(database, name, 120.0)

    @ext.job("NOTE_SWEEP")
    async def sweep(ctx: Context, most: int) -> int:
        return most

    @ext.maintenance(every=3600)
    async def start(tx: Tx) -> None:
        made = await ext.enqueue(tx, sweep.options(tags=["by-maintenance"]), 7)
        assert not made.existed
        await tx.run(ext.q.add_entry, job=made.id, entry="started")

    app.include(ext)
    async with working(app):
        await maintained(app, ext)
        [job] = await jobs_of(app, "NOTE_SWEEP")
        assert await app.job_handle(job.id).result(60) == 7
    assert (job.tags, await entries(app, ext)) == (["by-maintenance"], ["started"])


async def test_maintenance_that_fails_has_created_nothing(app: App, ext: Extension) -> None:
    hints: list[Any] = []

    @ext.job("NOTE_SWEEP")
    async def sweep(ctx: Context) -> None: ...

    @ext.maintenance(every=3600)
    async def start(tx: Tx) -> None:
        await ext.enqueue(tx, sweep)
        raise ValueError("no")

    app.include(ext)
    (await app.engine()).ctx.wakers.append(hints.extend)
    await maintained(app, ext)
    assert (await jobs_of(app, "NOTE_SWEEP"), hints) == ([], [])


async def test_an_idempotency_key_makes_one_job_of_repeated_maintenance(app: App, ext: Extension) -> None:
    answers: list[bool] = []

    @ext.job("NOTE_SWEEP")
    async def sweep(ctx: Context) -> None: ...

    @ext.maintenance(every=3600)
    async def first(tx: Tx) -> None:
        answers.append((await ext.enqueue(tx, sweep.options(idempotency_key="one"))).existed)

    @ext.maintenance(every=3600)
    async def second(tx: Tx) -> None:
        answers.append((await ext.enqueue(tx, sweep.options(idempotency_key="one"))).existed)

    app.include(ext)
    await maintained(app, ext)
    assert sorted(answers) == [False, True]
    assert len(await jobs_of(app, "NOTE_SWEEP")) == 1


# -- guards and effects -------------------------------------------------------------------------------------------


async def test_an_effect_creates_a_job_with_the_transition(app: App, ext: Extension) -> None:
    """For the tenant of its job; the same for a type with hooks of its own."""

    @ext.job("NOTE_INDEX")
    async def index(ctx: Context) -> None: ...

    @ext.job("NOTE_TELL")
    async def tell(ctx: Context, note: str) -> str:
        return note

    @ext.effect("complete", job_type="NOTE_INDEX")
    async def then(tx: Tx, verb: str, job: Job) -> None:
        await ext.enqueue(tx, tell.options(tenant=job.tenant), job.id)

    @ext.effect("create", job_type="NOTE_TELL")
    async def note(tx: Tx, verb: str, job: Job) -> None:
        await tx.run(ext.q.add_entry, job=job.payload["note"], entry=verb)

    app.include(ext)
    async with working(app):
        first = await index.options(tenant="acme").enqueue()
        await first.result(60)
        [told] = await jobs_of(app, "NOTE_TELL")
        assert await app.job_handle(told.id).result(60) == first.id
    assert (told.tenant, await entries(app, ext)) == ("acme", ["create"])


async def test_an_effect_that_fails_has_created_nothing(app: App, ext: Extension) -> None:
    @ext.job("NOTE_INDEX")
    async def index(ctx: Context, fails: bool) -> None: ...

    @ext.job("NOTE_TELL")
    async def tell(ctx: Context) -> None: ...

    @ext.effect("create", job_type="NOTE_INDEX")
    async def then(tx: Tx, verb: str, job: Job) -> None:
        await ext.enqueue(tx, tell)
        if job.payload["fails"]:
            raise ValueError("no")

    app.include(ext)
    with pytest.raises(HookFailed):
        await index.enqueue(True)
    assert await jobs_of(app, "NOTE_TELL") == []
    await index.enqueue(False)
    assert len(await jobs_of(app, "NOTE_TELL")) == 1


async def test_a_guard_creates_a_job_unless_it_refuses(app: App, ext: Extension) -> None:
    @ext.job("NOTE_INDEX")
    async def index(ctx: Context, allowed: bool) -> None: ...

    @ext.job("NOTE_TELL")
    async def tell(ctx: Context) -> None: ...

    @ext.guard("create", job_type="NOTE_INDEX")
    async def ask(tx: Tx, request: CreateRequest) -> None:
        await ext.enqueue(tx, tell)
        if not request.job.payload["allowed"]:
            raise Refused("no")

    app.include(ext)
    with pytest.raises(Refused):
        await index.enqueue(False)
    assert await jobs_of(app, "NOTE_TELL") == []
    await index.enqueue(True)
    assert len(await jobs_of(app, "NOTE_TELL")) == 1


async def test_the_refusal_of_a_created_job_is_that_of_the_hook(app: App, ext: Extension) -> None:
    @ext.job("NOTE_INDEX")
    async def index(ctx: Context) -> None: ...

    @ext.job("NOTE_TELL")
    async def tell(ctx: Context) -> None: ...

    @ext.guard("create", job_type="NOTE_TELL")
    async def never(tx: Tx, request: CreateRequest) -> None:
        raise TooMany("enough", code="enough_notes", retry_after=1)

    @ext.guard("create", job_type="NOTE_INDEX")
    async def ask(tx: Tx, request: CreateRequest) -> None:
        await ext.enqueue(tx, tell)

    app.include(ext)
    with pytest.raises(TooMany, match="enough"):
        await index.enqueue()
    assert await jobs_of(app, "NOTE_INDEX") == []


async def test_hooks_that_enqueue_without_end_are_an_error(app: App, ext: Extension) -> None:
    levels: list[int] = []

    @ext.job("NOTE_INDEX")
    async def index(ctx: Context, level: int) -> None: ...

    @ext.guard("create", job_type="NOTE_INDEX")
    async def again(tx: Tx, request: CreateRequest) -> None:
        level = request.job.payload["level"]
        levels.append(level)
        await ext.enqueue(tx, index, level + 1)

    app.include(ext)
    with pytest.raises(Invalid, match=f"job type 'NOTE_INDEX': hooks enqueue .* {LEVELS_MAX} levels deep") as refused:
        await index.enqueue(0)
    assert refused.value.code == "enqueue_loop"
    assert (levels, await jobs_of(app, "NOTE_INDEX")) == ([*range(LEVELS_MAX + 1)], [])


async def test_the_rest_of_a_hook_waits_for_locks_as_before(fresh_postgres_url: str, ext: Extension) -> None:
    """The create waits a second for a key that another transaction has taken; later statements have no such limit."""
    app, seen = App(Settings(database_url=fresh_postgres_url), name="locks"), list[str]()
    await migrate(fresh_postgres_url, [ext])
    shown = Query("lock_timeout", "SELECT current_setting('lock_timeout') AS lock_timeout")

    @ext.job("NOTE_SWEEP")
    async def sweep(ctx: Context) -> None: ...

    @ext.maintenance(every=3600)
    async def start(tx: Tx) -> None:
        seen.append((await tx.all(shown))[0]["lock_timeout"])
        await ext.enqueue(tx, sweep)
        seen.append((await tx.all(shown))[0]["lock_timeout"])

    app.include(ext)
    await maintained(app, ext)
    await app.close()
    assert seen[0] == seen[1]


async def test_only_hooks_and_maintenance_can_enqueue_so(app: App, ext: Extension) -> None:
    @ext.job("NOTE_INDEX")
    async def index(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await ext.enqueue(tx, index)

    app.include(ext)
    engine = await app.engine()
    with pytest.raises(Invalid, match="in a route use request") as refused:
        await engine.store.write(lambda tx: ext.enqueue(tx, index))
    assert refused.value.code == "not_in_hook"
    async with working(app):
        job = await index.options(max_attempts=1).enqueue()
        with pytest.raises(JobFailed, match="in a handler tx"):
            await job.result(60)
