"""`App`: define jobs as functions, enqueue them from async or sync code, and let workers find their handlers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from holdfast.assembly import Opened, open_all
from holdfast.clock import Clock
from holdfast.engine import Created, Engine
from holdfast.errors import Invalid
from holdfast.handle import JobHandle
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles, Machine, Policy
from holdfast.model import JobType, NewJob
from holdfast.settings import Settings, load
from holdfast.worker.context import Context, ErrorHook, Middleware, SyncContext
from holdfast.worker.handler import Handler, Isolation, Surroundings
from holdfast.worker.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
_T = TypeVar("_T")
Seconds = float | timedelta
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The platform's words about one job, apart from the handler's own parameters."""

    queue: str | None = None
    priority: int = 0
    delay: Seconds | None = None
    run_at: datetime | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    timeout: Seconds | None = None
    tags: tuple[str, ...] = ()
    lifecycle: str | None = None
    requires: tuple[str, ...] | None = None
    prefers: tuple[str, ...] | None = None
    tenant: str = "default"
    partition_key: str | None = None
    policy: Mapping[str, Any] | None = None  # any other knob of the policy, for this job only
    connection: Any = None

    def new_job(self, job_type: str, payload: dict[str, Any]) -> NewJob:
        policy = dict(self.policy or {})
        if self.timeout is not None:
            policy["timeout_seconds"] = _seconds(self.timeout)
        return NewJob(
            type=job_type,
            payload=payload,
            tenant=self.tenant,
            lifecycle=self.lifecycle,
            queue=self.queue,
            priority=self.priority,
            run_at=self.run_at,
            delay_seconds=None if self.delay is None else _seconds(self.delay),
            idempotency_key=self.idempotency_key,
            max_attempts=self.max_attempts,
            policy=policy or None,
            requires=None if self.requires is None else list(self.requires),
            prefers=None if self.prefers is None else list(self.prefers),
            tags=list(self.tags),
            partition_key=self.partition_key,
        )


class Definition(Generic[P, R]):
    """A job type and its function. It stays callable as the function it is; `enqueue` has the same signature."""

    def __init__(self, app: App, handler: Handler, options: Options) -> None:
        self._app, self.handler, self._options = app, handler, options
        update_wrapper(self, handler.function)

    @property
    def name(self) -> str:
        return self.handler.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def options(self, **options: Any) -> Definition[P, R]:
        """The same job type, to be enqueued with these options."""
        known = set(Options.__dataclass_fields__)
        if unknown := options.keys() - known:
            raise Invalid(
                f"no such option: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}",
                code="unknown_option",
            )
        for several in options.keys() & {"tags", "requires", "prefers"}:
            options[several] = None if options[several] is None else tuple(options[several])
        return Definition(self._app, self.handler, replace(self._options, **options))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        new = self._options.new_job(self.name, self.handler.signature.payload(args, kwargs))
        return self._handle(await self._app.create(new, connection=self._options.connection))

    async def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """One job for each mapping of arguments; all or none. A key would make them one job, so there is none."""
        if self._options.idempotency_key is not None:
            raise Invalid("an idempotency key names one job, not many", code="invalid_idempotency_key")
        signature, options = self.handler.signature, self._options
        new = [options.new_job(self.name, signature.payload((), dict(call))) for call in calls]
        return [self._handle(made) for made in await self._app.create_all(new, connection=options.connection)]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        return self._app.wait_for(lambda: self.enqueue(*args, **kwargs))

    def enqueue_many_sync(self, calls: Iterable[Mapping[str, Any]]) -> list[JobHandle[R]]:
        return self._app.wait_for(lambda: self.enqueue_many(calls))

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


class App:
    """Settings decide the database; a SQLite file when nothing is set.

    `lifespan` is an async context manager around each worker process: what it yields is `ctx.state` in every handler.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        database_url: str | None = None,
        lifecycles: Iterable[Machine] = (),
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
        on_error: ErrorHook | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._settings, self._url = settings, database_url
        self.lifecycles = Lifecycles(*lifecycles)
        self.handlers: dict[str, Handler] = {}
        self._lifespan = lifespan
        self._middleware = list(middleware)
        self._on_error = on_error
        self.clock, self.ids = clock or Clock(), ids or Ids()
        self._opened: dict[asyncio.AbstractEventLoop, asyncio.Task[Opened]] = {}
        self._beside: _Beside | None = None
        self._pid = os.getpid()

    @property
    def settings(self) -> Settings:
        """Read when first needed, so that importing an app asks nothing of its surroundings."""
        if self._settings is None:
            self._settings = load(overrides={"database_url": self._url})
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings

    # -- defining ---------------------------------------------------------------------------------------------

    def job(
        self,
        name: str | None = None,
        *,
        queue: str = "default",
        lifecycle: str = "default",
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        requires: Iterable[str] = (),
        prefers: Iterable[str] = (),
        isolation: str | None = None,
        errors: Mapping[type[BaseException] | str, str] | None = None,
        memory_mb: int | None = None,
        cpu_seconds: float | None = None,
        **policy: Any,
    ) -> Define:
        """Make a function the handler of a job type, by default of its own name.

        `errors` says how errors are treated, by class or by code: `{ValueError: "permanent", "E_BUSY": "throttled"}`.
        `isolation="process"` runs it in a child process, which `memory_mb` and `cpu_seconds` can limit.
        Any other knob of the policy may be given by its name: `lease_seconds`, `backoff_base_seconds`, ...
        """

        def define(function: Callable[..., Any]) -> Definition[Any, Any]:
            job_type = name or function.__name__
            codes = {kind: kind.__name__ for kind in errors or () if isinstance(kind, type)}
            knobs = _knobs(policy, errors or {}, max_attempts=max_attempts, timeout=timeout)
            declared = JobType(
                name=job_type,
                lifecycle=lifecycle,
                queue=queue,
                policy=knobs,
                requires=list(requires),
                prefers=list(prefers),
            )
            declared.check()
            self.lifecycles[lifecycle].policy.over(knobs)
            handler = Handler(
                declared,
                function,
                Signature(function, job_type),
                _isolation(isolation, function, job_type),
                codes,
                None if memory_mb is None else memory_mb * 1024 * 1024,
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
        opened = await self._here()
        if connection is None and new.idempotency_key is None:
            return await opened.creates.put(new)
        return await opened.engine.create(new, connection=await _raw(connection))

    async def create_all(self, new: list[NewJob], *, connection: Any = None) -> list[Created]:
        return await (await self._here()).engine.create_all(new, connection=await _raw(connection))

    def job_handle(self, job_id: str) -> JobHandle[Any]:
        """A handle on a job known by its id, from whoever enqueued it."""
        return JobHandle(self, job_id)

    async def engine(self) -> Engine:
        """The engine of the running event loop, with this app's job types declared."""
        return (await self._here()).engine

    async def _here(self) -> Opened:
        """Connections belong to an event loop, and to a process: each has its own."""
        if self._pid != os.getpid():
            self._opened, self._beside, self._pid = {}, None, os.getpid()
        loop = asyncio.get_running_loop()
        opening = self._opened.get(loop)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            self._opened = {known: task for known, task in self._opened.items() if not known.is_closed()}
            opening = self._opened[loop] = loop.create_task(
                open_all(self.settings, lifecycles=self.lifecycles, clock=self.clock, ids=self.ids)
            )
        opened = await asyncio.shield(opening)
        if missing := self.handlers.keys() - opened.declared:
            await opened.engine.declare(*(self.handlers[name].declared for name in sorted(missing)))
            opened.declared |= missing
        return opened

    async def close(self) -> None:
        """Close what this event loop has opened."""
        opening = self._opened.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            with contextlib.suppress(Exception):
                await (await opening).close()

    async def __aenter__(self) -> App:
        await self._here()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- from sync code ---------------------------------------------------------------------------------------

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run async work from sync code: on an event loop in a thread of its own, started when first needed."""
        if self._beside is None or self._pid != os.getpid():
            self._beside = _Beside()
        return self._beside.run(work)

    def close_sync(self) -> None:
        if self._beside is not None:
            self._beside.run(self.close)
            self._beside.stop()
            self._beside = None


class _Beside:
    """An event loop beside sync code."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-sync", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _knobs(
    policy: dict[str, Any],
    errors: Mapping[type[BaseException] | str, str],
    *,
    max_attempts: int | None,
    timeout: Seconds | None,
) -> dict[str, Any]:
    knobs = dict(policy)
    if max_attempts is not None:
        knobs["max_attempts"] = max_attempts
    if timeout is not None:
        knobs["timeout_seconds"] = _seconds(timeout)
    if errors:
        knobs["errors"] = {kind.__name__ if isinstance(kind, type) else kind: how for kind, how in errors.items()}
    Policy().over(knobs)  # an unknown knob is an error where it was written
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


def _seconds(span: Seconds) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else span


async def _raw(connection: Any) -> Any:
    """SQLAlchemy's connections and sessions, sync or async, lead to the driver's own connection."""
    if type(connection).__module__.partition(".")[0] != "sqlalchemy":
        return connection
    while hasattr(connection, "connection") or hasattr(connection, "get_raw_connection"):
        step = connection.get_raw_connection if hasattr(connection, "get_raw_connection") else connection.connection
        found = step() if callable(step) else step
        connection = await found if inspect.isawaitable(found) else found
        if hasattr(connection, "driver_connection"):
            return connection.driver_connection
    return connection
