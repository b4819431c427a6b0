"""Defining jobs: what `@app.job(...)` makes of a function, and what it refuses, at once and in plain words."""

import asyncio
import functools
import inspect
from datetime import timedelta
from typing import Any

import pytest

from holdfast import App, Context, SyncContext
from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle import Machine
from holdfast.sdk.definitions import Definition
from tests.codes import code_of


@pytest.fixture
def app() -> App:
    """Nothing here needs a database, and an app asks for none until something is enqueued."""
    return App()


class TestTheFunction:
    async def test_it_stays_the_function_it_was(self, app: App) -> None:
        @app.job()
        async def double(number: int) -> int:
            """Twice as much."""
            return 2 * number

        assert await double(21) == 42
        assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
        assert list(inspect.signature(double).parameters) == ["number"]

    def test_a_sync_one_too(self, app: App) -> None:
        @app.job()
        def double(number: int) -> int:
            return 2 * number

        assert double(number=21) == 42

    async def test_a_test_may_hand_it_a_context_of_its_own(self, app: App) -> None:
        @app.job()
        async def attempt(ctx: Context) -> int:
            return ctx.attempt

        class First:
            attempt = 1

        assert await attempt(First()) == 1

    def test_options_leave_the_definition_as_it_is(self, app: App) -> None:
        @app.job()
        async def mail() -> None: ...

        urgent = mail.options(priority=9)
        assert isinstance(urgent, Definition)
        assert urgent.options(queue="post").name == urgent.name == mail.name == "mail"


class TestTheName:
    def test_it_is_the_functions_own_unless_another_is_given(self, app: App) -> None:
        async def mail() -> None: ...

        assert app.job()(mail).name == "mail"
        assert app.job("SEND_EMAIL")(mail).name == "SEND_EMAIL"
        assert set(app.handlers) == {"mail", "SEND_EMAIL"}

    def test_it_names_one_function_in_an_app(self, app: App) -> None:
        async def mail() -> None: ...

        first = app.job()(mail)
        with pytest.raises(Invalid, match="'mail' is defined twice") as refused:
            app.job()(mail)
        assert refused.value.code == "duplicate_job_type"
        assert app.handlers["mail"] is first.handler
        App().job()(mail)  # another app is another matter

    @pytest.mark.parametrize("name", [" ", "a\nb", "x" * 201, 5])
    def test_it_must_be_one_that_can_be_shown(self, app: App, name: Any) -> None:
        with pytest.raises(Invalid) as refused:
            app.job(name)(asyncio.sleep)
        assert refused.value.code == "invalid_field"

    def test_a_decorator_without_parentheses_is_told_so(self, app: App) -> None:
        with pytest.raises(Invalid, match=r"`@app.job\(\)`"):

            @app.job  # type: ignore[arg-type]
            async def mail() -> None: ...

        assert app.handlers == {}


class TestWhatIsSaidAboutIt:
    def test_it_is_declared_for_every_process_to_see(self, app: App) -> None:
        @app.job(
            "FILM",
            queue="films",
            lifecycle="transcode",
            max_attempts=2,
            timeout=timedelta(minutes=5),
            requires={"ffmpeg"},
            prefers=("gpu",),
            errors={ValueError: "permanent", "E_BUSY": "throttled"},
            lease_seconds=60,
        )
        async def film() -> None: ...

        declared = app.handlers["FILM"].declared
        assert (declared.queue, declared.lifecycle) == ("films", "transcode")
        assert (declared.requires, declared.prefers) == (["ffmpeg"], ["gpu"])
        assert declared.policy == {
            "max_attempts": 2,
            "timeout_seconds": 300,
            "lease_seconds": 60,
            "errors": {"ValueError": "permanent", "E_BUSY": "throttled"},
        }

    @pytest.mark.parametrize(
        ("said", "code"),
        [
            ({"lease_secnods": 5}, "unknown_option"),
            ({"lease_seconds": -5}, "invalid_policy"),
            ({"heartbeat_seconds": 30}, "invalid_policy"),
            ({"max_attempts": 0}, "invalid_policy"),
            ({"max_attempts": "many"}, "invalid_policy"),
            ({"timeout": "soon"}, "invalid_policy"),
            ({"timeout": timedelta(0)}, "invalid_policy"),
            ({"errors": {ValueError: "fatal"}}, "invalid_policy"),
            ({"errors": {7: "permanent"}}, "policy_not_json"),
            ({"queue": ""}, "invalid_field queue"),
            ({"lifecycle": "defualt"}, "unknown_lifecycle"),
            ({"requires": "gpu"}, "invalid_field requires"),
            ({"prefers": 5}, "invalid_field prefers"),
            ({"isolation": "proces"}, "invalid_field isolation"),
            ({"isolation": "thread"}, "invalid_field isolation"),
            ({"memory_mb": 100}, "invalid_field memory_mb"),
            ({"cpu_seconds": 5, "isolation": "loop"}, "invalid_field cpu_seconds"),
            ({"memory_mb": "100", "isolation": "process"}, "invalid_field memory_mb"),
            ({"cpu_seconds": -1, "isolation": "process"}, "invalid_field cpu_seconds"),
        ],
    )
    def test_a_mistake_is_refused_where_it_was_made(self, app: App, said: dict[str, Any], code: str) -> None:
        async def film() -> None: ...

        with pytest.raises(Invalid) as refused:
            app.job(**said)(film)
        assert code_of(refused.value) == code
        assert app.handlers == {}

    def test_a_mistyped_name_is_answered_with_the_nearest(self, app: App) -> None:
        with pytest.raises(UnknownName, match="did you mean 'default'"):
            app.job(lifecycle="defualt")(asyncio.sleep)

    def test_a_mistyped_word_is_answered_with_the_nearest_and_all_there_are(self, app: App) -> None:
        with pytest.raises(
            Invalid, match=r"unknown option 'quue'; did you mean 'queue'\? there are .*, lease_seconds, "
        ):
            app.job(quue="mail")

    def test_the_options_that_there_are_are_each_listed_once_and_in_order(self, app: App) -> None:
        with pytest.raises(Invalid) as refused:
            app.job(quue="mail")
        listed = refused.value.message.partition("there are ")[2].split(", ")
        assert {"errors", "max_attempts", "queue"} < set(listed)
        assert listed == sorted(set(listed))

    def test_a_treatment_that_there_is_not_is_answered_with_those_there_are(self, app: App) -> None:
        with pytest.raises(
            Invalid, match="ValueError cannot be treated as 'fatal', only as transient, throttled, perm"
        ):
            app.job(errors={ValueError: "fatal"})(asyncio.sleep)

    def test_a_knob_is_judged_beside_the_others_of_its_lifecycle(self, app: App) -> None:
        """A heartbeat of 60 s would be too slow for the default lease of 30 s; crawl has one of 90 s."""
        app.job("crawl", lifecycle="crawl", heartbeat_seconds=60)(asyncio.sleep)
        assert app.handlers["crawl"].declared.policy == {"heartbeat_seconds": 60}

    def test_a_lifecycle_of_the_apps_own_can_be_named(self) -> None:
        moves = [
            "claim:    queued -> running    by worker",
            "complete: running -> succeeded by worker",
            "fail:     running -> dead      by worker",
            "release:  running -> queued    by worker",
            "reap:     running -> dead      by system",
        ]
        words = {state: state for state in ("queued", "running", "succeeded", "dead")}
        patient = Machine("patient", words=words, moves=moves)
        app = App(lifecycles=[patient])
        app.job(lifecycle="patient")(asyncio.sleep)
        assert app.handlers["sleep"].declared.lifecycle == "patient"


class TestWhereItRuns:
    async def _async(self) -> None: ...

    def _sync(self) -> None: ...

    def test_the_kind_of_function_decides_unless_it_asks_for_a_process(self, app: App) -> None:
        for name, function, isolation, kept in (
            ("a", self._async, None, "loop"),
            ("b", self._async, "loop", "loop"),
            ("c", self._async, "process", "process"),
            ("d", self._sync, None, "thread"),
            ("e", self._sync, "thread", "thread"),
            ("f", self._sync, "process", "process"),
        ):
            app.job(name, isolation=isolation)(function)
            assert app.handlers[name].isolation == kept

    def test_limits_are_for_processes(self, app: App) -> None:
        app.job("big", isolation="process", memory_mb=512, cpu_seconds=1.5)(self._sync)
        assert (app.handlers["big"].memory_bytes, app.handlers["big"].cpu_seconds) == (512 * 2**20, 1.5)

    def test_only_functions_run(self, app: App) -> None:
        defined = app.job("defined")(self._sync)
        for thing in (functools.partial(self._sync), App, None, defined):
            with pytest.raises(Invalid, match="a handler is a function"):
                app.job("thing")(thing)  # type: ignore[call-overload]
        assert list(app.handlers) == ["defined"]


class TestParameters:
    def test_a_context_is_found_by_its_annotation_and_never_asked_for(self, app: App) -> None:
        @app.job()
        async def first(ctx: Context, number: int) -> None: ...

        @app.job()
        def last(number: int, *, job: SyncContext) -> None: ...

        assert (first.handler.signature.context, first.handler.signature.names) == ("ctx", ("number",))
        assert (last.handler.signature.context, last.handler.signature.names) == ("job", ("number",))

    def test_what_cannot_be_a_handler_is_refused(self, app: App) -> None:
        def positional(number: int, /) -> None: ...

        def several(*numbers: int) -> None: ...

        def yields() -> Any:
            yield 1

        async def yields_async() -> Any:
            yield 1

        async def mixed(ctx: SyncContext) -> None: ...

        def unheard_of(number: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

        async def ctx_without_annotation(ctx, number: int) -> None: ...  # type: ignore[no-untyped-def]

        async def method(self, number: int) -> None: ...  # type: ignore[no-untyped-def]

        for function in (ctx_without_annotation, method, positional, several, yields, yields_async, mixed, unheard_of):
            with pytest.raises(Invalid) as refused:
                app.job()(function)
            assert refused.value.code == "invalid_handler"
            assert function.__name__ in str(refused.value)
        assert app.handlers == {}
