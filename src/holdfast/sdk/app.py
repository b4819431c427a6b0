"""`App`: defines jobs as functions, enqueues them from async or sync code, and gives workers their handlers."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from holdfast.assembly.engine import AppParts, OpenEngine, open_all
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch
from holdfast.engine import Created, Engine
from holdfast.engine.hooks.hooks import Hooks
from holdfast.errors import Invalid, OtherDatabase
from holdfast.extend import Extension
from holdfast.extension_settings import SettingsSection
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles, Machine
from holdfast.model import JobType, NewJob
from holdfast.model.limits import NO_KEY_FUNCTIONS, KeyFunctions, Limit
from holdfast.model.names import kind_of
from holdfast.observe.extension_metrics import Declarations
from holdfast.observe.storage_metrics import storage_metrics
from holdfast.observe.tracing import traces
from holdfast.sdk.connections import EnginesByLoop
from holdfast.sdk.definitions import Definitions
from holdfast.sdk.handle import JobHandle
from holdfast.sdk.handler_transactions import HandlerDatabase
from holdfast.sdk.transactions import driver_connection, require_sync
from holdfast.settings import Settings, load, refuse_same_variables
from holdfast.store import SqliteStore
from holdfast.store.sqlite import run_to_completion
from holdfast.worker.context import ErrorHook, Middleware, in_transaction
from holdfast.worker.handler import Handler, MiddlewareStack

P = ParamSpec("P")
R = TypeVar("R")
_T = TypeVar("_T")
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


class App(Definitions):
    """The settings name the database; a SQLite file when nothing is set.

    `name` identifies it among other apps on the same database; by default it is the module that creates it.
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
        if not isinstance(settings, Settings | None):
            raise Invalid(
                f"settings is a Settings of holdfast, got {kind_of(settings)}; a database is App(database_url=...)",
                code="invalid_app",
            )
        self._settings, self._url = settings, database_url
        made_in = sys._getframe(1).f_globals
        self.name = name or _module_name(made_in)
        self._made_in = str(made_in.get("__name__", ""))
        self.lifecycles = Lifecycles(*lifecycles)
        self.handlers: dict[str, Handler] = {}
        self.named_limits: dict[str, Limit] = {}
        self._lifespan = lifespan
        self._middleware = list(middleware)
        self._on_error = on_error
        self.clock, self.ids = clock or Clock(), ids or Ids()
        self.loaded_as: str | None = (
            None  # the reference in the command line, or "" if the command line names the database
        )
        self.extensions: dict[str, Extension] = {}
        self._engines = EnginesByLoop(self._open)
        self.handler_database = HandlerDatabase(self)

    def include(self, extension: Extension) -> None:
        """Add the job types, tables, hooks, routes, settings and metrics of an extension to this app."""
        if not isinstance(extension, Extension):
            raise Invalid(f"an app includes extensions, got {kind_of(extension)}", code="invalid_extension")
        if extension.name in self.extensions:
            raise Invalid(f"app {self.name!r} has an extension {extension.name!r} already", code="extension_conflict")
        others = list(self.extensions.values())
        self._check_job_types(extension)
        self._check_lifecycles(extension)
        for name in sorted(extension.named_limits.keys() & self.named_limits.keys()):
            raise Invalid(
                f"{extension.described} and {self.described} both declare limit {name!r}",
                code="extension_conflict",
                name=name,
            )
        if extension.section is not None:
            refuse_same_variables(extension.section, self.sections)
        extension.add_hooks(Hooks(), {*self.handlers, *extension.handlers})
        extension.files.check(each.files for each in others)
        extension.check_routes(others)
        extension.check_metrics(others)
        extension.included_in(self)
        for machine in extension.own_lifecycles:
            self.lifecycles.declare(machine)
        self.handlers |= extension.handlers
        self.named_limits |= extension.named_limits
        self.extensions[extension.name] = extension

    def _check_job_types(self, extension: Extension) -> None:
        for name in sorted(extension.handlers.keys() & self.handlers.keys()):
            raise Invalid(
                f"{extension.described} and {self.definer(name)} both define job type {name!r}",
                code="extension_conflict",
                name=name,
            )

    def _check_lifecycles(self, extension: Extension) -> None:
        known = {machine.name: machine for machine in self.lifecycles}
        for machine in extension.own_lifecycles:
            if known.get(machine.name, machine) is machine:
                continue
            others = [each.described for each in self.extensions.values() if known[machine.name] in each.own_lifecycles]
            raise Invalid(
                f"{extension.described} and {[*others, self.described][0]} both declare lifecycle {machine.name!r}",
                code="extension_conflict",
                name=machine.name,
            )

    def definer(self, job_type: str) -> str:
        return next((each.described for each in self.extensions.values() if job_type in each.handlers), self.described)

    @property
    def sections(self) -> list[SettingsSection]:
        """The settings that its extensions declare."""
        return [
            replace(each.section, by_app=each.given_settings is not None)
            for each in self.extensions.values()
            if each.section is not None
        ]

    def check_settings(self) -> None:
        """Fail when the app is opened, not when a job first reads the settings of an extension."""
        for extension in self.extensions.values():
            if extension.section is not None:
                _ = extension.settings

    def hooks(self) -> Hooks:
        """The guards and effects of all extensions."""
        hooks = Hooks()
        for extension in self.extensions.values():
            extension.add_hooks(hooks, self.handlers)
        return hooks

    def declarations(self) -> Declarations:
        """The metrics of all extensions, and of the storage that they open."""
        own = [each for extension in self.extensions.values() for each in extension.metrics.values()]
        return Declarations([*own, *storage_metrics.instruments])

    async def _open(self) -> OpenEngine:
        self.check_settings()
        return await open_all(self.settings, self.parts())

    def parts(self) -> AppParts:
        """What its engine and its server take from it. An error names its reference, unless the command line names the
        database: `loaded_as` is then empty, see `cli/app_option.py`."""
        return AppParts(
            lifecycles=self.lifecycles,
            clock=self.clock,
            ids=self.ids,
            reference=(self.reference if self.loaded_as is None else self.loaded_as) or "",
            extensions=tuple(self.extensions.values()),
            hooks=self.hooks(),
            key_functions=self._key_functions,
            named_limits=self.named_limits,
            job_scopes={name: each.scope for name, each in self.handlers.items() if each.scope is not None},
            caller_fields={name: each.caller_field for name, each in self.handlers.items() if each.caller_field},
        )

    def _key_functions(self, job_type: str) -> KeyFunctions:
        handler = self.handlers.get(job_type)
        return NO_KEY_FUNCTIONS if handler is None else handler.keys

    @property
    def app(self) -> App:
        return self

    @property
    def described(self) -> str:
        return f"app {self.name!r}"

    @property
    def settings(self) -> Settings:
        """Read when first needed, so that importing an app reads neither the environment nor a file."""
        if self._settings is None:
            self._settings = load(overrides={"database_url": self._url}, extensions=self.sections)
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings

    def configure(self, settings: dict[str, Any]) -> None:
        """Use these settings: a child process gets those of its worker."""
        self._settings = msgspec.convert(settings, Settings)

    @contextmanager
    def override(self, database_url: str, clock: Clock, ids: Ids) -> Iterator[None]:
        """Temporarily use another database, clock and ids, as tests do."""
        before = self._settings, self.clock, self.ids, self._engines
        self._settings = msgspec.structs.replace(self.settings, database_url=database_url)
        self.clock, self.ids, self._engines = clock, ids, EnginesByLoop(self._open)
        try:
            yield
        finally:
            self._engines.discard()
            self._settings, self.clock, self.ids, self._engines = before

    # -- defining ---------------------------------------------------------------------------------------------

    def middleware(self, layer: Middleware) -> Middleware:
        """`@app.middleware`: an async function of (ctx, call_next) around every handler, the first one outermost."""
        self._middleware.append(layer)
        return layer

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """`@app.on_error`: called with every error that a handler raises."""
        self._on_error = hook
        return hook

    def lifespan(self, span: Lifespan) -> Lifespan:
        """`@app.lifespan`: an async context manager of (app), entered once in each worker process."""
        self._lifespan = span
        return span

    @property
    def middleware_stack(self) -> MiddlewareStack:
        return MiddlewareStack(tuple(self._middleware), self._on_error)

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
        for name in dict.fromkeys([self._made_in, *(each.function.__module__ for each in self.handlers.values())]):
            module = sys.modules.get(name)
            for attribute, value in vars(module).items() if module else ():
                if value is self:
                    place = getattr(module, "__file__", None) if name == "__main__" else name
                    return None if place is None else f"{place}:{attribute}"
        return None

    # -- enqueueing -------------------------------------------------------------------------------------------

    async def create(self, new: list[NewJob], *, connection: Any = None) -> list[Created]:
        """All or none; with `connection`, in the transaction that the caller has open on it."""
        if connection is None:
            return await self.traced(new, self._create)
        opened = await self._without_writing()
        try:
            return await self._create_in_transaction(opened, new, connection)
        except OtherDatabase:  # the app's database may have been replaced by this one
            await opened.engine.store.identify()
        return await self._create_in_transaction(opened, new, connection)

    async def _create(self, new: list[NewJob]) -> list[Created]:
        _check_outside(new)
        opened = await self._declared()
        if len(new) == 1 and new[0].idempotency_key is None:
            return [await opened.creates.put(new[0])]
        return await opened.engine.create_many(new)

    async def create_alike(self, new: NewJob, payloads: list[dict[str, Any]]) -> list[Created]:
        """Jobs that differ only in their payloads, all or none."""
        if self.settings.traces:
            return await self.create([msgspec.structs.replace(new, payload=payload) for payload in payloads])
        _check_outside([new])
        return await (await self._declared()).engine.create_alike(new, payloads)

    def create_sync(self, new: list[NewJob], *, connection: Any = None) -> list[Created]:
        if connection is None:
            return self.run_sync(lambda: self.create(new))
        require_sync(connection)
        opened = self.run_sync(self._without_writing)
        try:
            return run_to_completion(self._create_in_transaction(opened, new, connection))  # in the connection's thread
        except OtherDatabase:
            self.run_sync(opened.engine.store.identify)
        return run_to_completion(self._create_in_transaction(opened, new, connection))

    async def _create_in_transaction(self, opened: OpenEngine, new: list[NewJob], connection: Any) -> list[Created]:
        connection = await driver_connection(connection)
        if missing := self._undeclared(opened):
            await opened.engine.job_types.declare(*missing, app=self.name, connection=connection)
        return await self.traced(new, lambda jobs: opened.engine.create_many(jobs, connection=connection))

    async def traced(
        self, new: list[NewJob], create: Callable[[list[NewJob]], Awaitable[list[Created]]]
    ) -> list[Created]:
        if not self.settings.traces or not new:
            return await create(new)
        handler = self.handlers.get(new[0].type)
        queue = new[0].queue or (handler.declared.queue if handler is not None else None)
        return await traces().enqueued(new, create, queue=queue)

    async def wake(self, job_id: str) -> bool:
        """Make a job that is snoozed, delayed or waiting for its retry claimable at once, as when a provider's webhook
        reports a result. False: it is running; if it is snoozed then, it will not wait."""
        return await (await self.engine(declared=False)).wake(job_id)

    def wake_sync(self, job_id: str) -> bool:
        return self.run_sync(lambda: self.wake(job_id))

    def job_handle(self, job_id: str) -> JobHandle[Any]:
        """A handle on a job by its id."""
        return JobHandle(self, job_id)

    async def engine(self, *, declared: bool = True) -> Engine:
        """The engine of the running event loop; with this app's job types declared, unless `declared` is false."""
        return (await (self._declared() if declared else self._engines.get())).engine

    async def dispatch(self) -> Dispatch | None:
        """The broker connection that carries hints; None without a broker."""
        return (await self._engines.get()).dispatch

    async def _declared(self) -> OpenEngine:
        opened = await self._engines.get()
        if missing := self._undeclared(opened):
            await opened.engine.job_types.declare(*missing, app=self.name)
            opened.declared.update(declared.name for declared in missing)
        return opened

    async def _without_writing(self) -> OpenEngine:
        """For use beside a transaction of the caller, which may hold SQLite's only lock: declares nothing there."""
        opened = await self._engines.get()
        return opened if isinstance(opened.engine.store, SqliteStore) else await self._declared()

    def _undeclared(self, opened: OpenEngine) -> list[JobType]:
        if self.handlers.keys() <= opened.declared:
            return []
        return [self.handlers[name].job_type for name in sorted(self.handlers.keys() - opened.declared)]

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._engines.close()

    async def __aenter__(self) -> App:
        await self._declared()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- from sync code ---------------------------------------------------------------------------------------

    def run_sync(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run async work from sync code, on an event loop in its own thread, started when first needed."""
        return self._engines.run_sync(work)

    def close_sync(self) -> None:
        """Close the connections that sync code has opened."""
        self._engines.close_sync()


def _check_outside(new: list[NewJob]) -> None:
    if new and in_transaction():
        raise Invalid(
            f"job type {new[0].type}: enqueued inside ctx.transaction(), but not as a part of it; use tx.enqueue(...)",
            code="transaction_open",
        )


def _module_name(scope: dict[str, Any]) -> str:
    """The name is the same for `python tasks.py` and for `--app tasks:app`."""
    name = str(scope.get("__name__", ""))
    if name != "__main__":
        return name
    spec = scope.get("__spec__")
    return str(spec.name) if spec is not None else Path(str(scope.get("__file__", name))).stem
