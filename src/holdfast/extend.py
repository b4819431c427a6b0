"""`Extension`: adds tables, queries, hooks, routes, settings, metrics, maintenance and checks to an app."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from holdfast.engine import Created
from holdfast.engine.admin.audit import AuditedAction, record
from holdfast.engine.hooks.claim import Allow, CancelJob, ClaimRequest, Defer, RejectJob
from holdfast.engine.hooks.create import CreateRequest
from holdfast.engine.hooks.enqueue import enqueue
from holdfast.engine.hooks.hooks import EFFECTIVE, GUARDED, Hooks, check_verbs
from holdfast.engine.hooks.moves import MoveRequest
from holdfast.engine.maintenance.extension_tasks import Task
from holdfast.engine.reads.extension_checks import Checked, Probe, fail, ok, probed_store, warn
from holdfast.engine.reads.why import Clause
from holdfast.errors import Invalid, UnknownName
from holdfast.extension_settings import Secret, SettingsSection, ShownSetting
from holdfast.lifecycle import Lifecycles, Machine
from holdfast.manifest import Argument, Command, CommandGroup, Manifest
from holdfast.model import NewJob, key
from holdfast.model.derived_key import derived_key
from holdfast.model.enqueueable import MakesJobs, new_job_of
from holdfast.model.json import encode_object
from holdfast.model.limits import Limit
from holdfast.model.names import kind_of, quoted
from holdfast.observe.extension_metrics import (
    SECONDS,
    AnyDeclared,
    DeclaredCounter,
    DeclaredGauge,
    DeclaredHistogram,
    MetricDeclaration,
    Metrics,
    check_names,
    same_shape,
)
from holdfast.observe.server_metrics import ServerMetrics
from holdfast.observe.storage_metrics import storage_metrics
from holdfast.observe.worker_metrics import FOR_EXTENSIONS, WorkerMetrics
from holdfast.redaction import know
from holdfast.sdk.command_call import CommandCall, Report
from holdfast.sdk.definitions import Definitions
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.responses import etag_of, file, html, ranged, redirect, stored, streamed, tagged_with
from holdfast.server.extensions.routes import Mount, MountLimits, RouteOptions, extension_route, mount, together
from holdfast.server.http.multipart import FormPart
from holdfast.server.http.route import Header, Reply, Route, Stream
from holdfast.settings import NAMES, load_section, shown_section
from holdfast.store import Tx
from holdfast.store.extension_files import ExtensionFiles
from holdfast.store.migrate import Migration
from holdfast.store.queries import Queries, Query
from holdfast.worker.handler import Handler

if TYPE_CHECKING:
    from holdfast.sdk.app import App
    from holdfast.storage import Storage

__all__ = [
    "Allow",
    "Argument",
    "CancelJob",
    "Checked",
    "ClaimRequest",
    "Clause",
    "Command",
    "CommandCall",
    "CommandGroup",
    "CreateRequest",
    "Created",
    "Defer",
    "Extension",
    "FormPart",
    "Header",
    "Manifest",
    "MoveRequest",
    "Query",
    "RejectJob",
    "Reply",
    "Report",
    "Request",
    "Secret",
    "Stream",
    "Tx",
    "derived_key",
    "etag_of",
    "fail",
    "file",
    "html",
    "ok",
    "ranged",
    "redirect",
    "stored",
    "streamed",
    "tagged_with",
    "warn",
]

AUDIT_BYTES_MAX = 4096  # of one entry
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
# Prefixes of the platform's own settings, metrics and scopes, and of variables that are not ours. `holdfast_` begins
# the names of its tables.
RESERVED = key.RESERVED.union(
    NAMES, {"queue", "queues", "events", "database", "http", "lifecycle", "test", "service", "port"}
)

_Function = TypeVar("_Function", bound=Callable[..., Awaitable[object]])
_Metric = TypeVar("_Metric", bound=AnyDeclared)
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class _Declared:
    """A guard or an effect, before the app that includes the extension has resolved its job types."""

    verbs: tuple[str, ...]
    job_types: tuple[str, ...] | None  # None: all of the extension
    function: Any
    batch: bool = False


class Extension(Definitions):
    """`name` is the prefix of its settings, metrics and scopes; with `holdfast_` before it, of its tables.
    `package` has `schema/postgres/0001_x.sql`, `schema/sqlite/0001_x.sql` and `sql/x.sql`, if any; by default it is the
    package that creates it, or the folder of a module without a package.
    `settings` is a struct: its field `keep_days` is `HOLDFAST_NAME_KEEP_DAYS`, or `keep_days` under `[name]` in
    holdfast.toml. `example` is a command that `holdfast dev` shows to begin with; `{url}` in it is the address."""

    def __init__(
        self,
        name: str,
        *,
        settings: type[msgspec.Struct] | None = None,
        lifecycles: Iterable[Machine] = (),
        package: str | None = None,
        example: str = "",
    ) -> None:
        reserved = name in RESERVED or str(name).startswith("holdfast_")
        if not isinstance(name, str) or not NAME.fullmatch(name) or reserved:
            taken = " that Holdfast does not reserve" if reserved else ""
            raise Invalid(
                f"the name of an extension is a lower-case identifier of at most 31 characters{taken}, "
                f"got {quoted(name)}",
                code="invalid_extension",
            )
        self.name = self.extension = name
        self.example = example
        self.section = None if settings is None else SettingsSection(name, settings)
        self.given_settings: msgspec.Struct | None = None
        self._read_settings: msgspec.Struct | None = None
        self.handlers: dict[str, Handler] = {}
        self.named_limits: dict[str, Limit] = {}
        self.own_lifecycles = tuple(lifecycles)
        self.lifecycles = Lifecycles(*self.own_lifecycles)
        self.tasks: list[Task] = []
        self.checks: list[Probe] = []
        self.health_fields: list[Probe] = []
        self._explanations: list[Any] = []
        self._startup: list[Callable[[], Awaitable[object]]] = []
        self.metrics = Metrics(name)
        self.routes: list[Route] = []
        self.mounts: list[Mount] = []
        self.scopes: dict[str, str] = {}  # `NAME:verb`, and what it allows
        made_in = sys._getframe(1).f_globals
        self.files = ExtensionFiles(
            name, package or str(made_in.get("__package__") or ""), str(made_in.get("__file__") or "")
        )
        self._app: App | None = None
        self._guards: list[_Declared] = []
        self._effects: list[_Declared] = []

    # -- jobs -------------------------------------------------------------------------------------------------

    @property
    def app(self) -> App:
        if self._app is None:
            raise Invalid(
                f"extension {self.name!r} is not included in an app yet: call app.include(...) first",
                code="extension_not_included",
            )
        return self._app

    @property
    def described(self) -> str:
        return f"extension {self.name!r}"

    def included_in(self, app: App) -> None:
        if self._app is not None and self._app is not app:
            raise Invalid(f"extension {self.name!r} is already included in another app", code="extension_conflict")
        self._app = app

    # -- settings ---------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Any:
        """Typed; read when first needed. Assigned settings replace the environment and the file."""
        if self.section is None:
            raise Invalid(f"{self.described} declares no settings", code="invalid_extension")
        if self.given_settings is not None:
            return self.given_settings
        if self._read_settings is None:
            self._read_settings = load_section(self.section)
            know(self.section.secrets_in(self._read_settings))
        return self._read_settings

    @settings.setter
    def settings(self, settings: msgspec.Struct | None) -> None:
        if self.section is None or not (settings is None or isinstance(settings, self.section.struct)):
            raise Invalid(f"{self.described} has no settings of type {kind_of(settings)}", code="invalid_extension")
        self.given_settings = settings
        know([] if settings is None else self.section.secrets_in(settings))

    def shown_settings(self) -> list[ShownSetting]:
        """Each setting without secrets, and where its value comes from."""
        return [] if self.section is None else shown_section(self.section, self.given_settings)

    # -- hooks ------------------------------------------------------------------------------------------------

    def guard(
        self, *verbs: str, job_type: str | Iterable[str] | None = None, batch: bool = False
    ) -> Callable[[_Function], _Function]:
        """Before a transition, in its transaction: an async function of (tx, request), which may raise `Refused`.

        `batch=True`, for `create` alone: a function of (tx, requests), called once for the jobs that are created
        together. It refuses some of them by `request.refuse(error)`.
        """
        if batch and verbs != ("create",):
            raise self._invalid("only a guard on create alone takes batches", "invalid_hook")
        return self._hook(self._guards, "guard", GUARDED, 2, verbs, job_type, batch=batch)

    def effect(
        self, *verbs: str, job_type: str | Iterable[str] | None = None, batch: bool = False
    ) -> Callable[[_Function], _Function]:
        """After a transition, in its transaction: an async function of (tx, verb, job). `batch=True`: of (tx, verb,
        jobs), called once for the jobs that make it together, after the other effects."""
        return self._hook(self._effects, "effect", EFFECTIVE, 3, verbs, job_type, batch=batch)

    def _hook(
        self,
        kept: list[_Declared],
        what: str,
        known: tuple[str, ...],
        arguments: int,
        verbs: tuple[str, ...],
        job_type: str | Iterable[str] | None,
        *,
        batch: bool = False,
    ) -> Callable[[_Function], _Function]:
        check_verbs(self.name, what, verbs, known)
        types = None if job_type is None else self._job_types(what, job_type)
        add = lambda function: kept.append(_Declared(verbs, types, function, batch))  # noqa: E731
        return self._decorator(what, arguments, "invalid_hook", add)

    def _job_types(self, what: str, job_type: str | Iterable[str]) -> tuple[str, ...]:
        types = tuple(job_type) if isinstance(job_type, list | tuple | set | frozenset) else (job_type,)
        if not all(isinstance(each, str) for each in types):
            wanted = f"job_type= of a {what} is the name of a job type, or a list of names"
            raise self._invalid(f"{wanted}, got {quoted(job_type)}", "invalid_hook")
        return types

    def add_hooks(self, hooks: Hooks, job_types: Iterable[str]) -> None:
        """Add its guards and effects to the hooks of an app with these job types."""
        hooks.add(self.name)
        known = set(job_types)
        for guard in self._guards:
            types = self._types(guard, known)
            hooks.guard(self.name, guard.verbs, types, guard.function, batch=guard.batch)
        for effect in self._effects:
            types = self._types(effect, known)
            hooks.effect(self.name, effect.verbs, types, effect.function, batch=effect.batch)
        for explanation in self._explanations:
            hooks.explain(self.name, self.handlers, explanation)

    def _types(self, declared: _Declared, known: set[str]) -> tuple[str, ...]:
        hook = f"hook {declared.function.__name__}"
        types = tuple(self.handlers) if declared.job_types is None else declared.job_types
        if not types:
            help_ = "name one with job_type=, or define one with @ext.job"
            raise self._invalid(f"{hook} is on no job type; {help_}", "invalid_hook")
        if unknown := sorted(set(types) - known):
            raise UnknownName(
                f"{self.described}: {hook} is on job type {unknown[0]!r}, which is not defined before "
                f"app.include(...); known: "
                f"{', '.join(sorted(known)) or 'none'}",
                code="unknown_job_type",
                name=unknown[0],
            )
        return types

    async def audit(self, tx: Tx, action: str, subject: str | None = None, **detail: Any) -> int:
        """Write an audit entry in the transaction of a hook, a route or maintenance. Returns its number.

        Best as the last statement: other writers of the audit log wait for the end of the transaction.
        """
        return await record(tx, self.audit_entry(action, subject, **detail))

    def audit_entry(self, action: str, subject: str | None = None, **detail: Any) -> AuditedAction:
        """For a guard on `create` that raises `Refused(..., audit=ext.audit_entry(...))`: it is written after the
        rollback."""
        if not isinstance(action, str) or not action or not isinstance(subject, str | None):
            raise self._invalid("audit entry: its action and its subject must be text", "invalid_audit_line")
        try:
            said = {"action": action, "subject": subject, "detail": detail}
            encode_object(said, "metadata", max_bytes=AUDIT_BYTES_MAX)
        except Invalid as error:
            raise self._invalid(f"audit entry: {error.message}", "invalid_audit_line") from None
        return AuditedAction(f"extension {self.name}", action, subject, detail)

    async def enqueue(self, tx: Tx, job: MakesJobs | NewJob | str, /, *args: Any, **kwargs: Any) -> Created:
        """Create a job in the transaction of maintenance, a guard or an effect: of a job type with its arguments, or of
        a type by its name. Workers are woken after the commit."""
        return await enqueue(tx, new_job_of(job, args, kwargs))

    # -- tables and queries -----------------------------------------------------------------------------------

    def migrations(self, dialect: str) -> list[Migration]:
        return self.files.migrations(dialect)

    @property
    def q(self) -> Queries:
        """The queries of `sql/*.sql`, by name."""
        return self.files.queries

    # -- routes -----------------------------------------------------------------------------------------------

    def route(
        self, method: str, path: str, *, scope: str | None, **options: Unpack[RouteOptions]
    ) -> Callable[[_Function], _Function]:
        """An async function of (request). Its `scope` is `NAME:verb`, one of the core, or None: no key is needed."""
        self.refuse_late(f"route {method} {path}")

        def add(function: Any) -> None:
            settings = lambda: None if self.section is None else self.settings  # noqa: E731
            made = extension_route(self.name, method, path, function, scope=scope, settings=settings, **options)
            self.routes.append(made)

        return self._decorator("route", 1, "invalid_route", add)

    def mount(self, path: str, asgi: Any, *, scope: str | None, **limits: Unpack[MountLimits]) -> None:
        """Mount an ASGI application below a path."""
        self.refuse_late(f"mount {path}")
        if not callable(asgi):
            wrong = f"mount {path}: an ASGI application is a callable, got {kind_of(asgi)}"
            raise self._invalid(wrong, "invalid_route")
        self.mounts.append(mount(self.name, path, asgi, scope=scope, **limits))

    def scope(self, verb: str, about: str) -> str:
        """Declare a scope for keys, and what it allows. Returns its full name, `NAME:verb`."""
        self.refuse_late(f"scope {verb}")
        name = f"{self.name}:{verb}"
        if key.extension_of(name) is None:
            wrong = f"the verb of a scope is a lower-case identifier, got {quoted(verb)}"
            raise self._invalid(wrong, "invalid_scope")
        if name in self.scopes:
            raise self._invalid(f"scope {name} is declared twice", "invalid_scope")
        self.scopes[name] = about
        return name

    def check_routes(self, others: Iterable[Extension]) -> None:
        """Raises if a route collides with one of the core or of another extension."""
        if not self.routes and not self.mounts:
            return
        from holdfast.server.app import ROUTES
        from holdfast.server.openapi.document import check_types

        every = (*others, self)
        routes, mounts = [one for each in every for one in each.routes], [one for each in every for one in each.mounts]
        check_types(together(ROUTES, routes, mounts))

    # -- metrics ----------------------------------------------------------------------------------------------

    def counter(self, name: str, help: str, labels: Iterable[str] = (), *, exact: bool = False) -> DeclaredCounter:  # noqa: A002
        """Declare a counter, `NAME_name_total` unless the name is exact: `indexed.add(1, "label")`."""
        return self._declare(DeclaredCounter, MetricDeclaration("counter", name, help, _labels(labels)), exact)

    def gauge(self, name: str, help: str, labels: Iterable[str] = (), *, exact: bool = False) -> DeclaredGauge:  # noqa: A002
        """Declare a gauge: `waiting.set(3)`, `waiting.add(-1)`."""
        return self._declare(DeclaredGauge, MetricDeclaration("gauge", name, help, _labels(labels)), exact)

    def histogram(
        self,
        name: str,
        help: str,  # noqa: A002
        labels: Iterable[str] = (),
        *,
        buckets: Iterable[float] = SECONDS,
        exact: bool = False,
    ) -> DeclaredHistogram:
        """Declare a histogram, by default of seconds: `took.observe(0.2)`."""
        family = MetricDeclaration("histogram", name, help, _labels(labels), tuple(buckets))
        return self._declare(DeclaredHistogram, family, exact)

    def _declare(self, kind: type[_Metric], family: MetricDeclaration, exact: bool) -> _Metric:
        self.refuse_late(f"metric {family.name}")
        made = self.metrics.declare(family, exact=exact)
        assert isinstance(made, kind)  # noqa: S101
        return made

    def check_metrics(self, others: Iterable[Extension]) -> None:
        """Raises if a metric has the name of one of the core or of another extension."""
        if not self.metrics:
            return
        core = (*ServerMetrics().instruments.values(), *WorkerMetrics().instruments.values())
        every = {f"the extension {each.name}": list(each.metrics.values()) for each in (*others, self)}
        declared = {one.name: one for instruments in every.values() for one in instruments}
        fed = [one for one in core if one.name in FOR_EXTENSIONS and same_shape(one, declared.get(one.name))]
        check_names({"the core": [one for one in core if one not in fed], **every})

    def open_storage(self, url: str, **options: Any) -> Storage:
        """As `holdfast.storage.open_storage`; its operations are counted in the storage metrics."""
        from holdfast.storage import open_storage

        storage = open_storage(url, **options)
        storage.watch = storage.watch or storage_metrics.of(storage.bucket)
        return storage

    # -- declared before `include` ----------------------------------------------------------------------------

    def refuse_late(self, what: str) -> None:
        """Raises after `include`: the app has already checked and opened what was declared."""
        if self._app is not None:
            wrong = f"{what} is declared after app.include(...); declare it before"
            raise self._invalid(wrong, "extension_included")

    def _decorator(
        self, what: str, arguments: int, code: str, add: Callable[[Any], None]
    ) -> Callable[[_Function], _Function]:
        return lambda function: self._register(what, function, arguments, code, add)

    def _register(
        self, what: str, function: _Function, arguments: int, code: str, add: Callable[[Any], None]
    ) -> _Function:
        self._check_function(what, function, arguments, code)
        self.refuse_late(f"{what} {function.__name__}")
        add(function)
        return function

    def _check_function(self, what: str, function: Callable[..., object], arguments: int, code: str) -> None:
        if not inspect.iscoroutinefunction(function) or not hasattr(function, "__name__"):  # a partial has none
            raise self._invalid(f"a {what} is an async function, got {kind_of(function)}", code)
        try:
            inspect.signature(function).bind(*range(arguments))
        except TypeError:
            several = "" if arguments == 1 else "s"
            wrong = f"{what} {function.__name__} must take {arguments} argument{several}"
            raise self._invalid(wrong, code) from None

    def _invalid(self, wrong: str, code: str) -> Invalid:
        return Invalid(f"{self.described}: {wrong}", code=code)

    # -- maintenance ------------------------------------------------------------------------------------------

    def maintenance(self, *, every: float) -> Callable[[_Function], _Function]:
        """An async function of (tx), which may await only that. One process at a time runs it, every `every`
        seconds, in its own transaction, for at most 30 seconds."""
        if not isinstance(every, int | float) or not 1 <= every <= 10**7:
            wrong = f"maintenance runs every 1 to 10,000,000 seconds, got {quoted(every)}"
            raise self._invalid(wrong, "invalid_maintenance")

        def add(function: Any) -> None:
            name = function.__name__
            if any(task.name == name for task in self.tasks):
                raise self._invalid(f"two maintenance functions are called {name!r}", "invalid_maintenance")
            self.tasks.append(Task(self.name, name, float(every), function))

        return self._decorator("maintenance function", 1, "invalid_maintenance", add)

    # -- start ------------------------------------------------------------------------------------------------

    def startup(self, function: _Function) -> _Function:
        """An async function of nothing, called before a server handles requests and before a worker claims jobs:
        `holdfast dev` is both. Child processes and other commands do not call it. Raise `Invalid` for a setting that
        the process must not start with."""
        return self._register("startup function", function, 0, "invalid_hook", self._startup.append)

    async def start(self) -> None:
        for function in self._startup:
            await function()

    # -- doctor, /health and why ------------------------------------------------------------------------------

    def check(self, name: str) -> Callable[[_Function], _Function]:
        """A check of `holdfast doctor`: an async function of (tx), or of nothing if it asks another system than the
        database, that returns `ok(...)`, `warn(...)` or `fail(...)` within 5 seconds. `read` has queries for it."""
        return self._probe(self.checks, "check", name)

    def health(self, name: str) -> Callable[[_Function], _Function]:
        """A field of /health, under `extensions`: an async function of (tx), or of nothing as above, that returns JSON
        within 5 seconds. It is called every 10 seconds, and its result is public."""
        return self._probe(self.health_fields, "field of /health", name)

    async def read(self, work: Callable[[Tx], Awaitable[_Found]]) -> _Found:
        """`await ext.read(lambda tx: tx.all(ext.q.notes))`: queries of a check, or of a field of /health, that is a
        function of nothing."""
        if (store := probed_store()) is None:
            raise RuntimeError("ext.read is for checks and fields of /health that are functions of nothing")
        return await store.read(work)

    def _probe(self, kept: list[Probe], what: str, name: str) -> Callable[[_Function], _Function]:
        self.refuse_late(f"{what} {name}")
        if not isinstance(name, str) or not NAME.fullmatch(name) or any(probe.name == name for probe in kept):
            wrong = f"the name of a {what} is a lower-case identifier that no other has, got {quoted(name)}"
            raise self._invalid(wrong, "invalid_extension")

        def add(function: _Function) -> _Function:
            outside = inspect.iscoroutinefunction(function) and not inspect.signature(function).parameters
            keep = lambda function: kept.append(Probe(self.name, name, function, outside))  # noqa: E731
            return self._register(what, function, 0 if outside else 1, "invalid_hook", keep)

        return add

    def explain(self, function: _Function) -> _Function:
        """For `jobs why` of its job types: an async function of (tx, job) that returns text, or a list of `Clause`."""
        self.refuse_late("an explanation")
        self._check_function("explanation", function, 2, "invalid_hook")
        self._explanations.append(function)
        return function


def _labels(labels: Iterable[str]) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else tuple(labels)
