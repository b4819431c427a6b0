"""`ctx.part`: parts of a job that its handler works on at the same time."""

import asyncio
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, SyncContext
from holdfast.errors import Invalid
from holdfast.model import Part, PartStatus
from holdfast.settings import Settings, load
from tests.app.steps import drained
from tests.worker.in_process import working


async def parts_of(app: App, job_id: str) -> dict[str, Any]:
    parts = await (await app.engine()).reads.parts(job_id)
    return {part.name: (str(part.status), part.percent, part.total, part.done, part.data) for part in parts}


async def test_a_failing_part_does_not_stop_concurrent_parts(app: App) -> None:
    """R003-112."""

    @app.job(max_attempts=1)
    async def film(ctx: Context) -> None:
        together = asyncio.Barrier(3)

        async def render(name: str) -> None:
            async with ctx.part(name, total=8) as part:
                await together.wait()
                await part.progress(done=2)
                if name == "720p":
                    raise ValueError("no frames")
                part.data = {"url": name}

        async with ctx.part("2160p") as part:
            await part.skip("above the source")
        ended = await asyncio.gather(*map(render, ("1080p", "720p", "480p")), return_exceptions=True)
        if any(isinstance(one, BaseException) for one in ended):
            raise RuntimeError("not all of it")

    async with working(app):
        job = await film.enqueue()
        with pytest.raises(JobFailed, match="not all of it"):
            await job.result(60)
    assert await parts_of(app, job.id) == {
        "2160p": ("skipped", None, None, None, None),
        "1080p": ("completed", 100.0, 8, 8, {"url": "1080p"}),
        "720p": ("failed", 25.0, 8, 2, None),
        "480p": ("completed", 100.0, 8, 8, {"url": "480p"}),
    }
    told = {part.name: part.error for part in await (await app.engine()).reads.parts(job.id)}
    assert told == {"2160p": "above the source", "1080p": None, "720p": "ValueError: no frames", "480p": None}


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_next_attempt_sees_finished_parts_and_may_reopen_them(app: App, kind: str) -> None:
    seen: list[Any] = []

    async def film(ctx: Context) -> None:
        for name in ("a", "b"):
            async with ctx.part(name) as part:
                seen.append((ctx.attempt, name, part.finished, part.data))
                if part.finished and name == "a":
                    await part.reopen()
                    await part.fail("once more")
                elif not part.finished:
                    await part.complete({"n": ctx.attempt})
        if ctx.attempt == 1:
            raise ConnectionError

    def film_sync(ctx: SyncContext) -> None:
        for name in ("a", "b"):
            with ctx.part(name) as part:
                seen.append((ctx.attempt, name, part.finished, part.data))
                if part.finished and name == "a":
                    part.reopen()
                    part.fail("once more")
                elif not part.finished:
                    part.complete({"n": ctx.attempt})
        if ctx.attempt == 1:
            raise ConnectionError

    job = await app.job("film", backoff_base_seconds=0)(film if kind == "async" else film_sync).enqueue()  # type: ignore[arg-type]
    await drained(app)
    await job.result(60)
    assert seen == [(1, "a", False, None), (1, "b", False, None), (2, "a", True, {"n": 1}), (2, "b", True, {"n": 1})]
    parts = await parts_of(app, job.id)
    assert (parts["a"][0], parts["b"][0]) == ("failed", "completed")


async def test_a_part_that_is_interrupted_is_neither_completed_nor_failed(app: App) -> None:
    @app.job()
    async def film(ctx: Context) -> str:
        if ctx.fence > 1:
            return "again"
        async with ctx.part("a") as part:
            await part.progress(30)
            raise ctx.snooze(0)

    async with working(app):
        job = await film.enqueue()
        assert await job.result(60) == "again"
    assert (await parts_of(app, job.id))["a"][:2] == ("in_progress", 30.0)


async def test_a_sync_part_that_raises_has_failed_and_invalid_progress_is_refused(app: App) -> None:
    codes: list[str] = []

    @app.job(max_attempts=1)
    def film(ctx: SyncContext) -> None:
        with ctx.part("a") as part:
            for said in (lambda: part.progress(300), lambda: part.skip(7), lambda: part.progress(done=-1)):  # type: ignore[arg-type]
                with pytest.raises(Invalid) as refused:
                    said()
                codes.append(refused.value.code)
            raise KeyError("lost")

    async with working(app):
        with pytest.raises(JobFailed, match="lost"):
            await (job := await film.enqueue()).result(60)
    assert codes == ["invalid_field", "invalid_field", "invalid_field"]
    assert (await parts_of(app, job.id))["a"][0] == "failed"


async def test_a_setting_that_is_given_wins_over_what_transcode_does_with_parts(store_url: str) -> None:
    """R003-141, R003-142: which keeps what is completed and discards what is not, unless told otherwise."""
    for said, wanted in (({}, (True, True)), ({"HOLDFAST_DISCARD_PARTIAL_PARTS": "false"}, (True, False))):
        app = App(load({"HOLDFAST_DATABASE_URL": store_url, **said}), name="parts")

        @app.job(lifecycle="transcode")
        async def film() -> None: ...

        try:
            policy = (await (await app.engine()).reads.snapshot((await (await film.enqueue()).get()).policy)).policy
            assert (policy.keep_completed_parts, policy.discard_partial_parts) == wanted
        finally:
            await app.close()


async def test_part_settings_apply_where_neither_job_type_nor_lifecycle_sets_them(store_url: str) -> None:
    """R003-141, R003-142."""
    assert (Settings().keep_completed_parts, Settings().discard_partial_parts) == (True, False)
    given = {"HOLDFAST_DATABASE_URL": store_url, "HOLDFAST_KEEP_COMPLETED_PARTS": "false"}
    app = App(load({**given, "HOLDFAST_DISCARD_PARTIAL_PARTS": "true"}), name="parts")

    @app.job()
    async def by_settings() -> None: ...

    @app.job(keep_completed_parts=True, discard_partial_parts=False)
    async def by_job_type() -> None: ...

    @app.job(lifecycle="transcode")
    async def film() -> None: ...

    try:
        engine, found = await app.engine(), []
        for job in (await by_settings.enqueue(), await by_job_type.enqueue(), await film.enqueue()):
            policy = (await engine.reads.snapshot((await job.get()).policy)).policy
            found.append((policy.keep_completed_parts, policy.discard_partial_parts))
        assert found == [(False, True), (True, False), (False, True)]
    finally:
        await app.close()


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_several_parts_in_one_report_are_finished_for_the_next_attempt(app: App, kind: str) -> None:
    seen: list[Any] = []
    made = [Part(name=name, status=PartStatus.COMPLETED, percent=100, data=name) for name in ("a", "b")]
    made += [Part(name="c", status=PartStatus.SKIPPED), Part(name="d")]

    async def film(ctx: Context) -> None:
        seen.append({name: part.data for name, part in (await ctx.finished_parts()).items()})
        await ctx.keep_parts([])
        await ctx.keep_parts(made, percent=50)
        if ctx.attempt == 1:
            raise ConnectionError("again")

    def film_sync(ctx: SyncContext) -> None:
        seen.append({name: part.data for name, part in ctx.finished_parts().items()})
        ctx.keep_parts(made, percent=50)
        if ctx.attempt == 1:
            raise ConnectionError("again")

    job_type: Any = app.job("FILM", backoff_base_seconds=0)(film if kind == "async" else film_sync)
    async with working(app) as at_work:
        await (await job_type.enqueue()).result(60)
    assert seen == [{}, {"a": "a", "b": "b", "c": None}]
    assert [verb for verb, _ in at_work.source.calls].count("progress") == 2
