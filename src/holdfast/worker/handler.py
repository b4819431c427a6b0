"""One job type as an app defines it: the function, its signature, and how it wants to be run."""

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
    metrics: Metrics = NO_METRICS  # of the extension that defines it
    extension: str = ""  # its name; empty: the app itself defines it

    @property
    def name(self) -> str:
        return self.declared.name

    @functools.cached_property
    def job_type(self) -> JobType:
        """What is declared, with the schema of the payload: made when needed, since models may come after the job."""
        return msgspec.structs.replace(self.declared, schema=self.signature.schema)

    @functools.cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


@dataclass(frozen=True)
class MiddlewareStack:
    """What an app puts around every handler: middleware, the first outermost, and a hook that hears of errors."""

    middleware: tuple[Middleware, ...] = ()
    on_error: ErrorHook | None = None


NO_MIDDLEWARE = MiddlewareStack()


async def invoke(
    handler: Handler,
    context: Context,
    payload: Any,
    around: MiddlewareStack,
    threads: Executor | None = None,
    returned: Callable[[], None] | None = None,
) -> Outcome:
    """Run the handler to its end, and say how it ended. Only cancellation gets through.

    `returned` is called in the handler's thread as soon as it has returned: the event loop may be busy then. With
    middleware it is not called, because the attempt goes on after the handler.
    """
    context.metrics = handler.metrics
    try:
        arguments = handler.signature.arguments(payload)
        if around.middleware:
            value = await _through(handler, context, arguments, around.middleware, threads)
        else:
            value = await _call(handler, context, arguments, threads, returned)
        if context.recorded_as is not None:
            return context.recorded_as
        if isinstance(value, SAID):
            raise value
        return Completed(handler.signature.result(value))
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # also SystemExit: a handler does not end its worker
        if around.on_error is not None and not isinstance(error, Snooze):
            await _tell(around.on_error, context, error)
        if context.recorded_as is not None:
            context.log.warning("the handler failed after it had completed the job: %s", error, exc_info=error)
            return context.recorded_as
        outcome = of_error(error, handler.codes, given_back=context.lease.epoch - context.lease.attempt)
        if isinstance(outcome, Released) and not isinstance(error, Snooze):
            context.log.warning("the handler met an outage of the database and is tried again soon: %s", error)
        return outcome


async def _call(
    handler: Handler,
    context: Context,
    arguments: dict[str, Any],
    threads: Executor | None,
    returned: Callable[[], None] | None = None,
) -> Any:
    name = handler.signature.context
    if handler.is_async:
        if name is not None:
            arguments[name] = context
        return await handler.function(**arguments)
    loop = asyncio.get_running_loop()
    if name is not None:
        arguments[name] = SyncContext(context, loop)
    return await loop.run_in_executor(threads, copy_context().run, _in_thread, handler.function, arguments, returned)


def _in_thread(
    function: Callable[..., Any], arguments: dict[str, Any], returned: Callable[[], None] | None = None
) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:  # the one exception that cannot be handed to whoever awaits it
        raise RuntimeError("the handler raised StopIteration") from error
    finally:
        if returned is not None:
            returned()


async def _through(
    handler: Handler,
    context: Context,
    arguments: dict[str, Any],
    middleware: tuple[Middleware, ...],
    threads: Executor | None,
) -> Any:
    def innermost() -> Awaitable[Any]:
        return _call(handler, context, arguments, threads)

    call: Callable[[], Awaitable[Any]] = innermost
    for layer in reversed(middleware):
        call = functools.partial(layer, context, call)
    return await call()


async def _tell(hook: ErrorHook, context: Context, error: BaseException) -> None:
    try:
        told = hook(context, error)
        if inspect.isawaitable(told):
            await told
    except Exception:
        log.exception("the app's error hook failed itself")
