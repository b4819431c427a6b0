"""`App`: define jobs as functions, enqueue them from async or sync code, and let workers find their handlers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from difflib import get_close_matches
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from holdfast.assembly import Opened, open_all
from holdfast.celery_names import CeleryNames
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch
from holdfast.drivers import driver_connection, require_sync
from holdfast.engine import Created, Engine
from holdfast.errors import Invalid, OtherDatabase
from holdfast.handle import JobHandle
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles, Machine, Policy
from holdfast.model import JobType, NewJob
from holdfast.model.names import quoted
from holdfast.observe.tracing import traces
from holdfast.opened import OpenedByLoop
from holdfast.options import JobOptions, Names, Options, PolicyKnobs, Seconds, Treated, names, refuse_unknown, seconds
from holdfast.settings import Settings, load
from holdfast.store import SqliteStore
from holdfast.store.sqlite import finish
from holdfast.worker.context import Context, ErrorHook, Middleware, SyncContext
from holdfast.worker.handler import Handler, Isolation, Surroundings
from holdfast.worker.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
_T = TypeVar("_T")
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


class Definition(CeleryNames, Generic[P, R]):
    """A job type and its function. It stays callable as the function it is; `enqueue` has the same signature."""

    def __init__(self, app: App, handler: Handler, options: Options) -> None:
        self._app, self.handler, self._options = app, handler, options
        update_wrapper(self, handler.function)

    @property
    def name(self) -> str:
        return self.handler.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def options(self, **options: Unpack[JobOptions]) -> Definition[P, R]:
        """The same job type, to be enqueued with these options."""
        return Definition(self._app, self.handler, self._options.but(**options))

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that `enqueue` would create."""
        return self._new(args, kwargs, "new_job")

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        new = self._new(args, kwargs, "enqueue")
        return self._handle(await self._app.create(new, connection=self._options.connection))

    async def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """One job for each mapping of arguments; all or none. A key would make them one job, so there is none."""
        new = self._new_for_each(calls, "enqueue_many")
        return [self._handle(made) for made in await self._app.create_all(new, connection=self._options.connection)]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        new = self._new(args, kwargs, "enqueue_sync")
        return self._handle(self._app.create_sync(new, connection=self._options.connection))

    def enqueue_many_sync(self, calls: Iterable[Mapping[str, Any]]) -> list[JobHandle[R]]:
        new = self._new_for_each(calls, "enqueue_many_sync")
        return [self._handle(made) for made in self._app.create_all_sync(new, connection=self._options.connection)]

    def _new(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: str) -> NewJob:
        self._refuse_options(kwargs, called)
        return self._options.new_job(self.name, self.handler.signature.payload(args, kwargs))

    def _refuse_options(self, kwargs: dict[str, Any], called: str) -> None:
        """An argument that the handler does not have: an option in the wrong place, or a typo."""
        signature = self.handler.signature
        unknown = () if signature.open else kwargs.keys() - signature.names
        for name in (name for name in unknown if isinstance(name, str)):
            if name in Options.__dataclass_fields__:
                shown = f"{self.handler.function.__name__}.options({name}={quoted(kwargs[name])}).{called}(...)"
                help_ = f" {name!r} is an option of the job: write {shown}"
            else:
                help_ = "".join(f" did you mean {near!r}?" for near in get_close_matches(name, signature.names, n=1))
                help_ = help_ or f" it has {', '.join(signature.names) or 'none'}"
            raise Invalid(f"{self.name} has no parameter {name!r};{help_}", code="invalid_payload")

    def _new_for_each(self, calls: Iterable[Mapping[str, Any]], called: str) -> list[NewJob]:
        if self._options.idempotency_key is not None:
            raise Invalid("an idempotency key names one job, not many", code="invalid_idempotency_key")
        new = []
        for place, call in enumerate(calls):
            try:
                new.append(self._new((), _arguments(call), called))
            except Invalid as error:  # in thousands of calls, say which one
                raise Invalid(f"call {place}: {error.message}", code=error.code, **error.fields) from None
        return new

    def _handle(self, made: Created) -> JobHandle[R]:
        return JobHandle(self._app, made.id, existed=made.existed, read=self.handler.signature.returned)


class Define(Protocol):
    """What `@app.job(...)` returns. A context is the worker's to give, so `enqueue` does not ask for it."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Definition[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> Definition[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Definition[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Definition[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Definition[P, R]: ...


class App(CeleryNames):
    """Settings decide the database; a SQLite file when nothing is set.

    `name` tells it from other apps on the same database; by default it is the module that makes it.
    `lifespan` is an async context manager around each worker process: what it yields is `ctx.state` in every handler.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        database_url: str | None = None,
        name: str | None = None,
        lifecycles: Iterable[Machine] = (),
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
        on_error: ErrorHook | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._settings, self._url = settings, database_url
        self.name = name or _module_name(sys._getframe(1).f_globals)
        self.lifecycles = Lifecycles(*lifecycles)
        self.handlers: dict[str, Handler] = {}
        self._lifespan = lifespan
        self._middleware = list(middleware)
        self._on_error = on_error
        self.clock, self.ids = clock or Clock(), ids or Ids()
        self.loaded_as: str | None = None  # the reference that a command was given, or "" if it names the database
        self._opened = OpenedByLoop(self._open)

    async def _open(self) -> Opened:
        return await open_all(
            self.settings, lifecycles=self.lifecycles, clock=self.clock, ids=self.ids, app=self._named_by or ""
        )

    @property
    def _named_by(self) -> str | None:
        """How a command finds this app, where the app itself names the database; see `cli/apps.py`."""
        return self.loaded_as if self.loaded_as is not None else self.reference

    @property
    def settings(self) -> Settings:
        """Read when first needed, so that importing an app asks nothing of its surroundings."""
        if self._settings is None:
            self._settings = load(overrides={"database_url": self._url})
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings

    def configure(self, settings: dict[str, Any]) -> None:
        """As somebody else was told: a child process works with the settings of its worker."""
        self._settings = msgspec.convert(settings, Settings)

    @contextmanager
    def moved(self, database_url: str, clock: Clock, ids: Ids) -> Iterator[None]:
        """For a while, as in a test, it works on another database and lives in another time."""
        before = self._settings, self.clock, self.ids, self._opened
        self._settings = msgspec.structs.replace(self.settings, database_url=database_url)
        self.clock, self.ids, self._opened = clock, ids, OpenedByLoop(self._open)
        try:
            yield
        finally:
            self._opened.let_go()
            self._settings, self.clock, self.ids, self._opened = before

    # -- defining ---------------------------------------------------------------------------------------------

    def job(
        self,
        name: str | None = None,
        *,
        queue: str = "default",
        lifecycle: str = "default",
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        requires: Names = (),
        prefers: Names = (),
        isolation: Literal["loop", "thread", "process"] | None = None,
        errors: Mapping[Any, Treated] | None = None,
        memory_mb: int | None = None,
        cpu_seconds: float | None = None,
        **policy: Unpack[PolicyKnobs],
    ) -> Define:
        """Make a function the handler of a job type, by default of its own name.

        `errors` says how errors are treated, by class or by code: `{ValueError: "permanent", "E_BUSY": "throttled"}`.
        `isolation="process"` runs it in a child process, which `memory_mb` and `cpu_seconds` can limit.
        Any other knob of the policy may be given by its name: `lease_seconds`, `backoff_base_seconds`, ...
        """
        if callable(name):
            raise Invalid("write `@app.job()`: the decorator wants its parentheses", code="invalid_handler")
        refuse_unknown(policy, [*_OWN_WORDS, *Policy.__struct_fields__])

        def define(function: Callable[..., Any]) -> Definition[Any, Any]:
            if not inspect.isroutine(function):
                raise Invalid(f"a handler is a function, got {quoted(function)}", code="invalid_handler")
            job_type = name or function.__name__
            codes = {kind: kind.__name__ for kind in errors or () if isinstance(kind, type)}
            knobs = _knobs(policy, errors or {}, max_attempts=max_attempts, timeout=timeout)
            declared = JobType(
                name=job_type,
                lifecycle=lifecycle,
                queue=queue,
                policy=knobs,
                requires=names(requires),
                prefers=names(prefers),
            )
            declared.check()
            self.lifecycles[lifecycle].policy.over(knobs)  # an unknown knob is an error where it was written
            where = _isolation(isolation, function, job_type)
            _check_limits(job_type, where, memory_mb=memory_mb, cpu_seconds=cpu_seconds)
            handler = Handler(
                declared,
                function,
                Signature(function, job_type),
                where,
                codes,
                None if memory_mb is None else int(memory_mb * 2**20),
                cpu_seconds,
            )
            if job_type in self.handlers:
                raise Invalid(f"job type {job_type!r} is defined twice in this app", code="duplicate_job_type")
            self.handlers[job_type] = handler
            return Definition(self, handler, Options())

        return define

    def middleware(self, layer: Middleware) -> Middleware:
        """`@app.middleware`: an async function of (ctx, call_next) around every handler, the first one outermost."""
        self._middleware.append(layer)
        return layer

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """`@app.on_error`: told of every error that leaves a handler."""
        self._on_error = hook
        return hook

    def lifespan(self, span: Lifespan) -> Lifespan:
        """`@app.lifespan`: an async context manager of (app), entered once in each worker process."""
        self._lifespan = span
        return span

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(tuple(self._middleware), self._on_error)

    @asynccontextmanager
    async def lifespan_state(self) -> AsyncIterator[Any]:
        if self._lifespan is None:
            yield None
            return
        async with self._lifespan(self) as state:
            yield state

    @property
    def reference(self) -> str | None:
        """`module:attribute` by which another process can import this app; None where it cannot."""
        for handler in self.handlers.values():
            name = handler.function.__module__
            module = sys.modules.get(name)
            for attribute, value in vars(module).items() if module else ():
                if value is self:
                    place = getattr(module, "__file__", None) if name == "__main__" else name
                    return None if place is None else f"{place}:{attribute}"
        return None

    # -- enqueueing -------------------------------------------------------------------------------------------

    async def create(self, new: NewJob, *, connection: Any = None) -> Created:
        if connection is None and new.idempotency_key is None:
            return (await self._traced([new], self._create_among_others))[0]
        return (await self.create_all([new], connection=connection))[0]

    async def create_all(self, new: list[NewJob], *, connection: Any = None) -> list[Created]:
        if connection is None:
            return await self._traced(new, self._create_together)
        opened = await self._beside()
        try:
            return await self._create_inside(opened, new, connection)
        except OtherDatabase:  # unless the app's own has been replaced by this one, and it has not noticed yet
            await opened.engine.store.identify()
        return await self._create_inside(opened, new, connection)

    async def _create_among_others(self, new: list[NewJob]) -> list[Created]:
        return [await (await self._here()).creates.put(new[0])]

    async def _create_together(self, new: list[NewJob]) -> list[Created]:
        return await (await self._here()).engine.create_all(new)

    def create_sync(self, new: NewJob, *, connection: Any = None) -> Created:
        if connection is None:
            return self.wait_for(lambda: self.create(new))
        return self.create_all_sync([new], connection=connection)[0]

    def create_all_sync(self, new: list[NewJob], *, connection: Any = None) -> list[Created]:
        if connection is None:
            return self.wait_for(lambda: self.create_all(new))
        require_sync(connection)
        opened = self.wait_for(self._beside)
        try:
            return finish(self._create_inside(opened, new, connection))  # in the thread that the connection belongs to
        except OtherDatabase:
            self.wait_for(opened.engine.store.identify)
        return finish(self._create_inside(opened, new, connection))

    async def _create_inside(self, opened: Opened, new: list[NewJob], connection: Any) -> list[Created]:
        connection = await driver_connection(connection)
        if missing := self._undeclared(opened):
            await opened.engine.declare(*missing, app=self.name, connection=connection)
        return await self._traced(new, lambda jobs: opened.engine.create_all(jobs, connection=connection))

    async def _traced(
        self, new: list[NewJob], create: Callable[[list[NewJob]], Awaitable[list[Created]]]
    ) -> list[Created]:
        if not self.settings.traces or not new:
            return await create(new)
        handler = self.handlers.get(new[0].type)
        queue = new[0].queue or (handler.declared.queue if handler is not None else None)
        return await traces().enqueued(new, create, queue=queue)

    def job_handle(self, job_id: str) -> JobHandle[Any]:
        """A handle on a job known by its id, from whoever enqueued it."""
        return JobHandle(self, job_id)

    async def engine(self, *, declared: bool = True) -> Engine:
        """The engine of the running event loop, with this app's job types declared, unless that does not matter."""
        return (await (self._here() if declared else self._opened.here())).engine

    async def dispatch(self) -> Dispatch | None:
        """How hints leave and reach this process; None where no broker carries them."""
        return (await self._opened.here()).dispatch

    async def _here(self) -> Opened:
        opened = await self._opened.here()
        if missing := self._undeclared(opened):
            await opened.engine.declare(*missing, app=self.name)
            opened.declared.update(declared.name for declared in missing)
        return opened

    async def _beside(self) -> Opened:
        """The same beside a transaction of the caller's own, which may hold SQLite's only lock: nothing is written."""
        opened = await self._opened.here()
        return opened if isinstance(opened.engine.store, SqliteStore) else await self._here()

    def _undeclared(self, opened: Opened) -> list[JobType]:
        return [self.handlers[name].job_type for name in sorted(self.handlers.keys() - opened.declared)]

    async def close(self) -> None:
        """Close what this event loop has opened."""
        await self._opened.close()

    async def __aenter__(self) -> App:
        await self._here()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- from sync code ---------------------------------------------------------------------------------------

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run async work from sync code: on an event loop in a thread of its own, started when first needed."""
        return self._opened.wait_for(work)

    def close_sync(self) -> None:
        """Close what sync code has opened."""
        self._opened.close_sync()


# What `@app.job` takes beside the knobs of the policy.
_OWN_WORDS = [name for name, word in inspect.signature(App.job).parameters.items() if word.kind is word.KEYWORD_ONLY]


def _module_name(scope: dict[str, Any]) -> str:
    """The same for `python tasks.py` and for `--app tasks:app`."""
    name = str(scope.get("__name__", ""))
    if name != "__main__":
        return name
    spec = scope.get("__spec__")
    return str(spec.name) if spec is not None else Path(str(scope.get("__file__", name))).stem


def _knobs(
    policy: PolicyKnobs,
    errors: Mapping[Any, Treated],
    *,
    max_attempts: int | None,
    timeout: Seconds | None,
) -> dict[str, Any]:
    knobs: dict[str, Any] = {**policy}
    if max_attempts is not None:
        knobs["max_attempts"] = max_attempts
    if timeout is not None:
        knobs["timeout_seconds"] = seconds(timeout)
    if errors:
        knobs["errors"] = {kind.__name__ if isinstance(kind, type) else kind: how for kind, how in errors.items()}
    return knobs


def _isolation(wanted: str | None, function: Callable[..., Any], job_type: str) -> Isolation:
    natural = Isolation.LOOP if inspect.iscoroutinefunction(function) else Isolation.THREAD
    if wanted is None or wanted == natural:
        return natural
    if wanted == Isolation.PROCESS:
        return Isolation.PROCESS
    raise Invalid(
        f"job type {job_type!r}: isolation is {natural.value!r} for this function, or 'process'; got {wanted!r}",
        code="invalid_isolation",
    )


def _check_limits(job_type: str, isolation: Isolation, **limits: float | None) -> None:
    for name, limit in limits.items():
        if limit is None:
            continue
        if isolation is not Isolation.PROCESS:
            raise Invalid(
                f"job type {job_type!r}: {name} limits a child; add isolation='process'", code="invalid_limit"
            )
        if not isinstance(limit, int | float) or not 0 < limit < 10**9:
            raise Invalid(f"job type {job_type!r}: {name} must be positive, got {quoted(limit)}", code="invalid_limit")


def _arguments(call: Any) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise Invalid(f"a call is a mapping of arguments by name, got {quoted(call)}", code="invalid_payload")
    return dict(call)
