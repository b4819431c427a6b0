"""Defining jobs: what `@app.job(...)` makes of a function, and which mistakes it refuses."""

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


class TestFunction:
    async def test_a_decorated_async_function_can_be_called_directly(self, app: App) -> None:
        @app.job()
        async def double(number: int) -> int:
            """Twice as much."""
            return 2 * number

        assert await double(21) == 42
        assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
        assert list(inspect.signature(double).parameters) == ["number"]

    def test_a_decorated_sync_function_can_be_called_directly(self, app: App) -> None:
        @app.job()
        def double(number: int) -> int:
            return 2 * number

        assert double(number=21) == 42

    async def test_a_direct_call_accepts_any_context_object(self, app: App) -> None:
        @app.job()
        async def attempt(ctx: Context) -> int:
            return ctx.attempt

        class First:
            attempt = 1

        assert await attempt(First()) == 1

    def test_options_return_a_new_definition_with_the_same_name(self, app: App) -> None:
        @app.job()
        async def mail() -> None: ...

        urgent = mail.options(priority=9)
        assert isinstance(urgent, Definition)
        assert urgent.options(queue="post").name == urgent.name == mail.name == "mail"


class TestName:
    def test_the_job_type_defaults_to_the_name_of_the_function(self, app: App) -> None:
        async def mail() -> None: ...

        assert app.job()(mail).name == "mail"
        assert app.job("SEND_EMAIL")(mail).name == "SEND_EMAIL"
        assert set(app.handlers) == {"mail", "SEND_EMAIL"}

    def test_a_job_type_can_be_defined_once_per_app(self, app: App) -> None:
        async def mail() -> None: ...

        first = app.job()(mail)
        with pytest.raises(Invalid, match="'mail' is defined twice") as refused:
            app.job()(mail)
        assert refused.value.code == "duplicate_job_type"
        assert app.handlers["mail"] is first.handler
        App().job()(mail)  # another app is another matter

    @pytest.mark.parametrize("name", [" ", "a\nb", "x" * 201, 5])
    def test_an_unprintable_or_overlong_job_type_is_refused(self, app: App, name: Any) -> None:
        with pytest.raises(Invalid) as refused:
            app.job(name)(asyncio.sleep)
        assert refused.value.code == "invalid_field"

    def test_the_decorator_without_parentheses_is_refused_with_a_hint(self, app: App) -> None:
        with pytest.raises(Invalid, match=r"`@app.job\(\)`"):

            @app.job  # type: ignore[arg-type]
            async def mail() -> None: ...

        assert app.handlers == {}


class TestOptions:
    def test_options_become_the_declared_job_type(self, app: App) -> None:
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
            ({"reserved_slot": True, "isolation": "process"}, "invalid_field reserved_slot"),
            ({"reserved_slot": "yes"}, "invalid_field reserved_slot"),
            ({"needs_database": 1}, "invalid_field needs_database"),
        ],
    )
    def test_an_invalid_option_is_refused_at_definition(self, app: App, said: dict[str, Any], code: str) -> None:
        async def film() -> None: ...

        with pytest.raises(Invalid) as refused:
            app.job(**said)(film)
        assert code_of(refused.value) == code
        assert app.handlers == {}

    def test_an_unknown_lifecycle_suggests_the_nearest(self, app: App) -> None:
        with pytest.raises(UnknownName, match="did you mean 'default'"):
            app.job(lifecycle="defualt")(asyncio.sleep)

    def test_an_unknown_option_suggests_the_nearest_and_lists_all(self, app: App) -> None:
        with pytest.raises(
            Invalid, match=r"unknown option 'quue'; did you mean 'queue'\? there are .*, lease_seconds, "
        ):
            app.job(quue="mail")

    def test_the_listed_options_are_sorted_and_unique(self, app: App) -> None:
        with pytest.raises(Invalid) as refused:
            app.job(quue="mail")
        listed = refused.value.message.partition("there are ")[2].split(", ")
        assert {"errors", "max_attempts", "queue"} < set(listed)
        assert listed == sorted(set(listed))

    def test_an_unknown_error_treatment_lists_the_valid_ones(self, app: App) -> None:
        with pytest.raises(
            Invalid, match="ValueError cannot be treated as 'fatal', only as transient, throttled, perm"
        ):
            app.job(errors={ValueError: "fatal"})(asyncio.sleep)

    def test_an_option_is_validated_together_with_the_policy_of_its_lifecycle(self, app: App) -> None:
        """A heartbeat of 60 s would be too slow for the default lease of 30 s; crawl has one of 90 s."""
        app.job("crawl", lifecycle="crawl", heartbeat_seconds=60)(asyncio.sleep)
        assert app.handlers["crawl"].declared.policy == {"heartbeat_seconds": 60}

    def test_a_custom_lifecycle_of_the_app_can_be_used(self) -> None:
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


class TestIsolation:
    async def _async(self) -> None: ...

    def _sync(self) -> None: ...

    def test_isolation_defaults_to_loop_or_thread_by_the_kind_of_function(self, app: App) -> None:
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

    def test_memory_and_cpu_limits_apply_to_process_isolation(self, app: App) -> None:
        app.job("big", isolation="process", memory_mb=512, cpu_seconds=1.5)(self._sync)
        assert (app.handlers["big"].memory_bytes, app.handlers["big"].cpu_seconds) == (512 * 2**20, 1.5)

    def test_a_handler_must_be_a_function(self, app: App) -> None:
        defined = app.job("defined")(self._sync)
        for thing in (functools.partial(self._sync), App, None, defined):
            with pytest.raises(Invalid, match="a handler is a function"):
                app.job("thing")(thing)  # type: ignore[call-overload]
        assert list(app.handlers) == ["defined"]


class TestParameters:
    def test_the_context_parameter_is_found_by_its_annotation(self, app: App) -> None:
        @app.job()
        async def first(ctx: Context, number: int) -> None: ...

        @app.job()
        def last(number: int, *, job: SyncContext) -> None: ...

        assert (first.handler.signature.context, first.handler.signature.names) == ("ctx", ("number",))
        assert (last.handler.signature.context, last.handler.signature.names) == ("job", ("number",))

    def test_a_function_with_an_unsupported_signature_is_refused(self, app: App) -> None:
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
