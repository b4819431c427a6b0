"""Job types as functions: `@app.job` and `@extension.job`, and the definitions that they return."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from holdfast.engine import Created
from holdfast.errors import Invalid, InvalidField
from holdfast.lifecycle import Lifecycles, Policy
from holdfast.model import JobType, NewJob
from holdfast.model.key import Scope, extension_of
from holdfast.model.limits import JobLimits, KeyFunction, KeyFunctions, Limit, check_units, units_of
from holdfast.model.names import quoted
from holdfast.observe.extension_metrics import Metrics
from holdfast.sdk.celery_names import CeleryNames
from holdfast.sdk.handle import JobHandle
from holdfast.sdk.options import (
    JobOptions,
    Names,
    Options,
    PolicyKnobs,
    Seconds,
    Treated,
    names,
    refuse_unknown,
    seconds,
)
from holdfast.worker.context import NO_METRICS, Context, SyncContext
from holdfast.worker.handler import Handler, Isolation
from holdfast.worker.signature import Signature

if TYPE_CHECKING:
    from holdfast.sdk.app import App

_DICT = frozenset({dict})

P = ParamSpec("P")
R = TypeVar("R")


class Definition(CeleryNames, Generic[P, R]):
    """A job type and its function. It can still be called as the function; `enqueue` has the same signature."""

    def __init__(self, owner: Definitions, handler: Handler, options: Options) -> None:
        self._owner, self.handler, self._options = owner, handler, options
        update_wrapper(self, handler.function)

    @property
    def _app(self) -> App:
        return self._owner.app

    @property
    def name(self) -> str:
        return self.handler.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def options(self, **options: Unpack[JobOptions]) -> Definition[P, R]:
        """The same job type, enqueued with these options."""
        return Definition(self._owner, self.handler, self._options.but(**options))

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that `enqueue` would create."""
        return self._new_job(args, kwargs, "new_job")

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        new = self._new_job(args, kwargs, "enqueue")
        return self._handles(await self._app.create([new], connection=self._options.connection))[0]

    async def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """One job for each mapping of arguments, all or none; not with an idempotency key, which names one job."""
        payloads = self._payloads(calls, "enqueue_many")
        if self._options.differ:
            new = [self._options.new_job(self.name, payload) for payload in payloads]
            return self._handles(await self._app.create(new, connection=self._options.connection))
        return self._handles(await self._app.create_alike(self._options.new_job(self.name, {}), payloads))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        new = self._new_job(args, kwargs, "enqueue_sync")
        return self._handles(self._app.create_sync([new], connection=self._options.connection))[0]

    def enqueue_many_sync(self, calls: Iterable[Mapping[str, Any]]) -> list[JobHandle[R]]:
        payloads = self._payloads(calls, "enqueue_many_sync")
        if self._options.differ:
            new = [self._options.new_job(self.name, payload) for payload in payloads]
            return self._handles(self._app.create_sync(new, connection=self._options.connection))
        alike = self._options.new_job(self.name, {})
        return self._handles(self._app.run_sync(lambda: self._app.create_alike(alike, payloads)))

    def _new_job(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: str) -> NewJob:
        signature = self.handler.signature
        if not args and signature.is_plain(kwargs):
            return self._options.new_job(self.name, kwargs)
        self._check_arguments(kwargs, called)
        return self._options.new_job(self.name, signature.payload(args, kwargs))

    def _check_arguments(self, kwargs: dict[str, Any], called: str) -> None:
        """Reject an argument that the handler does not have: an option in the wrong place, or a typo."""
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

    def _payloads(self, calls: Iterable[Mapping[str, Any]], called: str) -> list[dict[str, Any]]:
        if self._options.idempotency_key is not None:
            raise InvalidField("an idempotency key names one job, not many", field="idempotency_key")
        signature = self.handler.signature
        given: list[Any] = list(calls)
        if _DICT.issuperset(map(type, given)):
            with suppress(Invalid):
                return signature.payloads(given)
        payloads = []
        for place, call in enumerate(given):
            try:
                arguments = _arguments(call)
                self._check_arguments(arguments, called)
                payloads.append(signature.payload((), arguments))
            except Invalid as error:  # name the one among thousands of calls
                raise Invalid(f"call {place}: {error.message}", code=error.code, **error.fields) from None
        return payloads

    def _handles(self, created: list[Created]) -> list[JobHandle[R]]:
        app, read = self._app, self.handler.signature.returned
        return [JobHandle(app, made.id, existed=made.existed, read=read) for made in created]


class JobDecorator(Protocol):
    """What `@app.job(...)` returns. The worker passes the context, so `enqueue` does not take it."""

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


class Definitions(CeleryNames, ABC):
    """The base of what defines job types: an app or an extension."""

    handlers: dict[str, Handler]
    named_limits: dict[str, Limit]
    lifecycles: Lifecycles
    metrics: Metrics = NO_METRICS
    extension: str = ""  # its name, where this is an extension

    @property
    @abstractmethod
    def app(self) -> App:
        """Where its jobs are created."""

    @property
    @abstractmethod
    def described(self) -> str:
        """For messages: `app 'shop'`, `extension 'notes'`."""

    def definer(self, job_type: str) -> str:
        """For messages: the app or extension that defines this job type."""
        return self.described

    def refuse_late(self, what: str) -> None:
        """Raises if it is too late to declare this."""

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
        concurrency: int | None = None,
        rate: str | float | None = None,
        burst: float | None = None,
        limit_key: str | KeyFunction | None = None,
        concurrency_per_key: int | None = None,
        rate_per_key: str | float | None = None,
        burst_per_key: float | None = None,
        limits: Names | Mapping[str, int] = (),
        fairness_key: str | KeyFunction | None = None,
        scope: str | None = None,
        caller_field: str | None = None,
        reserved_slot: bool = False,
        needs_database: bool = False,
        **policy: Unpack[PolicyKnobs],
    ) -> JobDecorator:
        """Make a function the handler of a job type, by default of its own name.

        `errors` says how errors are treated, by class or by code: `{ValueError: "permanent", "E_BUSY": "throttled"}`.
        `isolation="process"` runs it in a child process, which `memory_mb` and `cpu_seconds` can limit.
        `concurrency` and `rate` ("10/s", "600/min") bound its jobs in all workers together; with `_per_key`, those of
        each `limit_key`: a field of the payload, or a function of it. `limits` names limits that it shares with others
        (`app.limit`), as a list, or with the units that a job takes: `{"gpu": 3}`. Claims take turns between the keys
        that `fairness_key` gives. Creating it over HTTP needs a key with `scope`, besides `jobs:create`; the server
        then passes the subject of the key as the parameter `caller_field`, which the request must not contain.
        `reserved_slot=True`: each worker has one more slot, only for such jobs, which so start while all others are
        busy: for short jobs that control others. `needs_database=True`: remote workers, which have none, leave its jobs
        to workers on the database.
        Any other field of the policy can be given by its name: `lease_seconds`, `backoff_base_seconds`, ...
        """
        if callable(name):
            raise Invalid("write `@app.job()`: the decorator needs parentheses", code="invalid_handler")
        refuse_unknown(policy, [*_OPTIONS, *Policy.__struct_fields__])
        codes = {kind: kind.__name__ for kind in errors or () if isinstance(kind, type)}
        knobs: dict[str, Any] = {**policy}
        if max_attempts is not None:
            knobs["max_attempts"] = max_attempts
        if timeout is not None:
            knobs["timeout_seconds"] = seconds(timeout)
        if errors:
            knobs["errors"] = {codes.get(kind, kind): how for kind, how in errors.items()}

        keys = KeyFunctions(*(key if callable(key) else None for key in (limit_key, fairness_key)))
        bounds = JobLimits(
            of_type=Limit.of(concurrency, rate, burst),
            of_key=Limit.of(concurrency_per_key, rate_per_key, burst_per_key, suffix="_per_key"),
            key_from="" if callable(limit_key) else limit_key,
            fair_from="" if callable(fairness_key) else fairness_key,
            units=units_of(limits),
        )

        def define(function: Callable[..., Any]) -> Definition[Any, Any]:
            if not inspect.isroutine(function):
                raise Invalid(f"a handler is a function, got {quoted(function)}", code="invalid_handler")
            job_type = name or function.__name__
            self.refuse_late(f"job type {job_type}")
            needs = {"requires": names(requires), "prefers": names(prefers), "limits": bounds}
            declared = JobType(name=job_type, lifecycle=lifecycle, queue=queue, policy=knobs, **needs)
            declared.check()
            self.lifecycles[lifecycle].policy.over(knobs)  # fails here if a field is unknown
            where = _isolation(isolation, function, job_type)
            _check_limits(job_type, where, memory_mb=memory_mb, cpu_seconds=cpu_seconds)
            memory_bytes = None if memory_mb is None else int(memory_mb * 2**20)
            signature, owner = Signature(function, job_type), (self.metrics, self.extension, keys, scope)
            for field, key in (("limit_key", limit_key), ("fairness_key", fairness_key)):
                _check_key_field(job_type, field, key, signature)
            _check_parameter(job_type, "caller_field", caller_field, signature)
            _check_scope(job_type, scope, self.extension)
            _check_reserved(job_type, where, reserved_slot)
            _check_flag(job_type, "needs_database", needs_database)
            own = (memory_bytes, cpu_seconds, *owner, reserved_slot, caller_field, needs_database)
            return self._define(Handler(declared, function, signature, where, codes, *own))

        return define

    def limit(
        self, name: str, *, concurrency: int | None = None, rate: str | float | None = None, burst: float | None = None
    ) -> None:
        """Declare a limit that several job types share: `@app.job(limits=["gpu"])` counts against it."""
        check_units({name: 1})
        declared = Limit.of(concurrency, rate, burst)
        if declared is None:
            raise InvalidField(f"limit {name!r} needs concurrency or rate", field="concurrency")
        if name in self.named_limits:
            raise Invalid(f"limit {name!r} is declared twice in {self.described}", code="duplicate_limit")
        self.named_limits[name] = declared

    def _define(self, handler: Handler) -> Definition[Any, Any]:
        if handler.name in self.handlers:
            both = " and ".join(dict.fromkeys([self.described, self.definer(handler.name)]))
            raise Invalid(f"job type {handler.name!r} is defined twice in {both}", code="duplicate_job_type")
        self.handlers[handler.name] = handler
        return Definition(self, handler, Options())


# What `@app.job` takes beside the fields of the policy.
_OPTIONS = [
    name for name, word in inspect.signature(Definitions.job).parameters.items() if word.kind is word.KEYWORD_ONLY
]


def _check_scope(job_type: str, scope: str | None, extension: str) -> None:
    """One of the core, or of the extension that defines the job; an app may name those of its extensions."""
    if scope is None or scope in list(Scope):
        return
    owner = extension_of(scope)
    if owner is None or extension not in ("", owner):
        raise Invalid(f"job type {job_type!r}: {quoted(scope)} is no scope that it can need", code="invalid_scope")


def _isolation(wanted: str | None, function: Callable[..., Any], job_type: str) -> Isolation:
    natural = Isolation.LOOP if inspect.iscoroutinefunction(function) else Isolation.THREAD
    if wanted is None or wanted == natural:
        return natural
    if wanted == Isolation.PROCESS:
        return Isolation.PROCESS
    raise InvalidField(
        f"job type {job_type!r}: isolation is {natural.value!r} for this function, or 'process'; got {wanted!r}",
        field="isolation",
    )


def _check_key_field(job_type: str, field: str, key: Any, signature: Signature) -> None:
    """A key is a parameter of the handler, or a function."""
    if inspect.iscoroutinefunction(key):
        raise InvalidField(f"job type {job_type!r}: {field} must be a plain function, not an async one", field=field)
    if not callable(key):
        _check_parameter(job_type, field, key, signature, " or a function of the payload")


def _check_parameter(job_type: str, field: str, name: Any, signature: Signature, otherwise: str = "") -> None:
    if name is None or (isinstance(name, str) and (name in signature.names or (signature.open and name))):
        return
    there_are = ", ".join(signature.names) or "none"
    raise InvalidField(
        f"job type {job_type!r}: {field} must be a parameter of the handler ({there_are}){otherwise}, "
        f"got {quoted(name)}",
        field=field,
    )


def _check_limits(job_type: str, isolation: Isolation, **limits: float | None) -> None:
    for name, limit in limits.items():
        if limit is None:
            continue
        if isolation is not Isolation.PROCESS:
            raise InvalidField(f"job type {job_type!r}: {name} limits a child; add isolation='process'", field=name)
        if not isinstance(limit, int | float) or not 0 < limit < 10**9:
            raise InvalidField(f"job type {job_type!r}: {name} must be positive, got {quoted(limit)}", field=name)


def _check_reserved(job_type: str, isolation: Isolation, reserved_slot: Any) -> None:
    _check_flag(job_type, "reserved_slot", reserved_slot)
    if reserved_slot and isolation is Isolation.PROCESS:
        problem = "cannot be combined with isolation='process': its child process may not be free"
        raise InvalidField(f"job type {job_type!r}: reserved_slot {problem}", field="reserved_slot")


def _check_flag(job_type: str, field: str, flag: Any) -> None:
    if not isinstance(flag, bool):
        raise InvalidField(f"job type {job_type!r}: {field} must be true or false, got {quoted(flag)}", field=field)


def _arguments(call: Any) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise Invalid(f"a call is a mapping of arguments by name, got {quoted(call)}", code="invalid_payload")
    return dict(call)
