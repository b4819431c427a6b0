"""A handler: the function of a job type, its signature and isolation, and how it is called."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model import JobType
from holdfast.model.limits import NO_KEY_FUNCTIONS, KeyFunctions
from holdfast.observe.extension_metrics import Metrics
from holdfast.worker.context import NO_METRICS, Context, ErrorHook, Middleware, SyncContext, log
from holdfast.worker.outcomes import SAID, Completed, Outcome, Released, Snooze, of_error
from holdfast.worker.signature import Signature


class Isolation(StrEnum):
    LOOP = "loop"  # an async function, on the worker's event loop
    THREAD = "thread"  # a sync function, in a thread of the worker
    PROCESS = "process"  # either, in a child process that can be killed and limited


@dataclass(frozen=True)
class Handler:
    declared: JobType
    function: Callable[..., Any]
    signature: Signature
    isolation: Isolation
    codes: Mapping[type[BaseException], str] = field(default_factory=dict)
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    metrics: Metrics = NO_METRICS  # those of the extension that defines it
    extension: str = ""  # the name of the extension; empty: the app itself defines it
    keys: KeyFunctions = NO_KEY_FUNCTIONS
    scope: str | None = None  # of the keys that may create such a job over HTTP
    reserved_slot: bool = False  # its jobs may use the slot that a worker has beside its others
    caller_field: str | None = None  # the parameter that a server fills with the subject of the caller
    needs_database: bool = False  # a worker without a database does not claim its jobs

    @property
    def name(self) -> str:
        return self.declared.name

    @functools.cached_property
    def job_type(self) -> JobType:
        """The declaration with the payload's schema. Built when needed: models may be defined after the job."""
        return msgspec.structs.replace(self.declared, schema=self.signature.schema)

    @functools.cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


@dataclass(frozen=True)
class MiddlewareStack:
    """The middleware of an app, the first one outermost, and its error hook."""

    middleware: tuple[Middleware, ...] = ()
    on_error: ErrorHook | None = None


NO_MIDDLEWARE = MiddlewareStack()
NO_RESULT = Completed()


async def invoke(
    handler: Handler,
    context: Context,
    payload: Any,
    stack: MiddlewareStack,
    threads: Executor | None = None,
    returned: Callable[[], None] | None = None,
) -> Outcome:
    """Run the handler and return its outcome; only cancellation is raised.

    `returned` is called in the handler's thread as soon as it returns: the event loop may be blocked then. With
    middleware it is not called, because the attempt goes on after the handler.
    """
    context.metrics = handler.metrics
    try:
        arguments = handler.signature.arguments(payload)
        if stack.middleware:
            value = await _call_through(handler, context, arguments, stack.middleware, threads)
        elif handler.is_async:
            value = await _called(handler, context, arguments)
        else:
            value = await _call_in_thread(handler, context, arguments, threads, returned)
        if context.recorded_as is not None:
            return context.recorded_as
        if value is not None and isinstance(value, SAID):
            raise value
        result = handler.signature.result(value)
        return NO_RESULT if result is None else Completed(result)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # also SystemExit: a handler must not end its worker
        if stack.on_error is not None and not isinstance(error, Snooze):
            await _call_error_hook(stack.on_error, context, error)
        if context.recorded_as is not None:
            context.log.warning(
                "the handler failed after it had completed the job in its transaction: %s", error, exc_info=error
            )
            return context.recorded_as
        outcome = of_error(error, handler.codes, given_back=context.lease.epoch - context.lease.attempt)
        if isinstance(outcome, Released) and not isinstance(error, Snooze):
            context.log.warning("the handler failed because of a database outage; retrying soon: %s", error)
        return outcome


def _called(handler: Handler, context: Context, arguments: dict[str, Any]) -> Awaitable[Any]:
    """Of an async handler."""
    name = handler.signature.context
    if name is not None:
        arguments[name] = context
    called: Awaitable[Any] = handler.function(**arguments)
    return called


async def _call_in_thread(
    handler: Handler,
    context: Context,
    arguments: dict[str, Any],
    threads: Executor | None,
    returned: Callable[[], None] | None = None,
) -> Any:
    name, loop = handler.signature.context, asyncio.get_running_loop()
    if name is not None:
        arguments[name] = SyncContext(context, loop)
    return await loop.run_in_executor(threads, copy_context().run, _in_thread, handler.function, arguments, returned)


def _in_thread(
    function: Callable[..., Any], arguments: dict[str, Any], returned: Callable[[], None] | None = None
) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:  # a future cannot raise this exception
        raise RuntimeError("the handler raised StopIteration") from error
    finally:
        if returned is not None:
            returned()


async def _call_through(
    handler: Handler,
    context: Context,
    arguments: dict[str, Any],
    middleware: tuple[Middleware, ...],
    threads: Executor | None,
) -> Any:
    call: Callable[[], Awaitable[Any]]
    if handler.is_async:
        call = functools.partial(_called, handler, context, arguments)
    else:
        call = functools.partial(_call_in_thread, handler, context, arguments, threads)
    for layer in reversed(middleware):
        call = functools.partial(layer, context, call)
    return await call()


async def _call_error_hook(hook: ErrorHook, context: Context, error: BaseException) -> None:
    try:
        result = hook(context, error)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("the app's error hook failed")
