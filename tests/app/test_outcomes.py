"""Outcomes: a handler returns or raises Permanent, Retry, Reject or Snooze with the same effect."""

from typing import Any

import pytest

from holdfast import App, Context, JobFailed, Permanent, Reject, Retry, Snooze, SyncContext
from holdfast.lifecycle import State
from holdfast.sdk.definitions import Definition
from tests.app.steps import drained

WORDS = {
    "permanent": Permanent("E_GONE", "for ever"),
    "retry": Retry("E_BUSY", "not now", after=3600),
    "reject": Reject("E_NO", "not this"),
    "snooze": Snooze(3600),
    "snooze by name": Snooze(seconds=3600),
}


def says(app: App, how: str, kind: str) -> Definition[[str], Any]:
    async def word(name: str) -> Any:
        if how == "raised":
            raise WORDS[name]
        return WORDS[name]

    def word_sync(name: str) -> Any:
        if how == "raised":
            raise WORDS[name]
        return WORDS[name]

    return app.job("word")(word if kind == "async" else word_sync)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["raised", "returned"])
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_each_outcome_moves_the_job_to_its_state(app: App, how: str, kind: str) -> None:
    word = says(app, how, kind)
    jobs = {name: await word.enqueue(name) for name in WORDS}
    assert await drained(app) == len(WORDS)
    found = {name: await job.get() for name, job in jobs.items()}
    assert {name: (job.state, job.attempt) for name, job in found.items()} == {
        "permanent": (State.DEAD, 1),
        "retry": (State.RETRYING, 1),
        "reject": (State.REJECTED, 1),
        "snooze": (State.QUEUED, 0),
        "snooze by name": (State.QUEUED, 0),
    }
    assert {name: (job.error["code"], job.error["message"]) for name, job in found.items() if job.error} == {
        "permanent": ("E_GONE", "for ever"),
        "retry": ("E_BUSY", "not now"),
        "reject": ("E_NO", "not this"),
    }
    for name in ("retry", "snooze"):
        assert 3500 < (found[name].run_at - found[name].updated_at).total_seconds() < 3700


@pytest.mark.parametrize("word", [Permanent, Retry, Reject])
async def test_the_context_of_an_error_is_stored_with_it(app: App, word: type[Permanent]) -> None:
    """R002-40: where and what, of the handler; which attempt and which worker, of the platform."""

    @app.job(backoff_base_seconds=3600, backoff_jitter=0)
    async def crawl() -> None:
        raise word("E_ROBOTS", "not allowed", context={"domain": "example.com", "depth": 2, "seen": ["/a"]})

    job = await crawl.enqueue()
    await drained(app)
    stored = await job.get()
    assert stored.error["context"] == {
        "domain": "example.com",
        "depth": 2,
        "seen": ["/a"],
        "attempt": 1,
        "workerId": stored.last_worker,
    }


@pytest.mark.parametrize(
    ("context", "kept"),
    [
        ({"page": object, 3: float("nan")}, {"page": "<class 'object'>", "3": "nan"}),
        ({"body": "x" * 20_000, "url": "/a"}, {"body": "x" * 200, "url": "/a"}),
        ({"one": "x" * 9000, "two": "y" * 9000}, {"one": "x" * 200, "two": "y" * 200}),
        ("not an object", {"context": "not an object"}),
        ({}, {}),
    ],
)
async def test_a_context_that_cannot_be_stored_does_not_hide_the_error(
    app: App, context: Any, kept: dict[str, Any]
) -> None:
    """R002-40."""

    @app.job()
    async def crawl() -> None:
        raise Permanent("E_ROBOTS", "not allowed", context=context)

    job = await crawl.enqueue()
    await drained(app)
    error = (await job.get()).error
    assert error["code"] == "E_ROBOTS"
    assert {name: value for name, value in error["context"].items() if name not in ("attempt", "workerId")} == kept


async def test_the_context_has_methods_for_outcomes(app: App) -> None:
    @app.job()
    async def picky(ctx: Context, size: int) -> Any:
        if size > 10:
            raise ctx.reject("E_TOO_BIG", f"{size} is too big")
        return ctx.snooze(3600)

    @app.job()
    def picky_sync(ctx: SyncContext) -> Any:
        return ctx.reject("E_NEVER")

    big, small, never = await picky.enqueue(11), await picky.enqueue(5), await picky_sync.enqueue()
    await drained(app)
    states = [(await job.get()).state for job in (big, small, never)]
    assert states == [State.REJECTED, State.QUEUED, State.REJECTED]


class TestErrors:
    async def test_any_other_error_is_retried_until_the_attempts_are_used_up(self, app: App) -> None:
        seen: list[int] = []

        @app.job(max_attempts=3, backoff_base_seconds=0)
        async def fails(ctx: Context) -> None:
            seen.append(ctx.attempt)
            raise ConnectionError("connection refused")

        job = await fails.enqueue()
        await drained(app)
        assert seen == [1, 2, 3]
        with pytest.raises(JobFailed, match="ConnectionError connection refused"):
            await job.result(60)

    async def test_an_attempt_keeps_its_traceback(self, app: App) -> None:
        @app.job(max_attempts=1)
        async def fails() -> None:
            raise ConnectionError("connection refused")

        job = await fails.enqueue()
        await drained(app)
        [attempt] = await (await app.engine()).reads.attempts(job.id)
        assert "in fails" in attempt.error["context"]["traceback"]
        assert "ConnectionError: connection refused" in attempt.error["context"]["traceback"]

    async def test_the_job_type_declares_how_error_classes_and_codes_are_treated(self, app: App) -> None:
        class OwnError(LookupError): ...

        @app.job(errors={LookupError: "permanent", OSError: "transient", "E_TOO_FAST": "throttled"})
        async def fails(how: str) -> None:
            raise {"own": OwnError, "key": KeyError, "os": ConnectionError, "value": ValueError}[how]("x")

        @app.job("fast", errors={"E_TOO_FAST": "permanent"})
        async def fast() -> None:
            raise Retry("E_TOO_FAST")

        jobs = {how: await fails.enqueue(how) for how in ("own", "key", "os", "value")}
        jobs["fast"] = await fast.enqueue()
        await drained(app)
        found = {how: await job.get() for how, job in jobs.items()}
        assert {how: (job.state, job.error["code"]) for how, job in found.items()} == {
            "own": (State.DEAD, "LookupError"),
            "key": (State.DEAD, "LookupError"),
            "os": (State.RETRYING, "OSError"),
            "value": (State.RETRYING, "ValueError"),
            "fast": (State.DEAD, "E_TOO_FAST"),
        }

    async def test_a_code_declared_permanent_overrides_the_retry_of_the_handler(self, app: App) -> None:
        """The error codes of the policy take precedence."""

        @app.job(errors={"E_X": "permanent"})
        async def fails() -> None:
            raise Retry("E_X", after=0)

        job = await fails.enqueue()
        await drained(app)
        assert (await job.get()).state is State.DEAD

    @pytest.mark.parametrize("wrong", [Snooze(-1), Snooze("soon"), Retry("E", after=-1), Permanent("", "no code")])  # type: ignore[arg-type]
    async def test_an_outcome_with_invalid_values_fails_the_job(self, app: App, wrong: Exception) -> None:
        @app.job(max_attempts=1)
        async def odd() -> None:
            raise wrong

        job = await odd.enqueue()
        await drained(app)
        with pytest.raises(JobFailed):
            await job.result(60)
        assert (await job.get()).state is State.DEAD

    async def test_system_exit_and_keyboard_interrupt_fail_only_their_own_job(self, app: App) -> None:
        @app.job(max_attempts=1)
        async def quits(how: str) -> None:
            raise SystemExit(3) if how == "exit" else KeyboardInterrupt

        @app.job(max_attempts=1)
        def quits_in_thread() -> None:
            raise SystemExit(3)

        @app.job()
        async def fine() -> str:
            return "fine"

        jobs = [await quits.enqueue("exit"), await quits.enqueue("key"), await quits_in_thread.enqueue()]
        well = await fine.enqueue()
        await drained(app)
        assert await well.result(60) == "fine"
        for job, code in zip(jobs, ["SystemExit", "KeyboardInterrupt", "SystemExit"], strict=True):
            with pytest.raises(JobFailed) as failed:
                await job.result(60)
            assert failed.value.code == code
