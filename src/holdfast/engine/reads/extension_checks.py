"""Functions of extensions that answer questions: checks for `doctor`, fields of /health, explanations for `jobs why`.

A function that fails or takes too long yields `CheckFailed`, and affects nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from holdfast.engine.hooks.hooks import Hook, error_text, warn_of_blocking
from holdfast.store import Store, Tx

PROBE_SECONDS = 5.0

_store: ContextVar[Store] = ContextVar("holdfast_probed_store")


class Checked(NamedTuple):
    """The finding of a check: its level (`ok`, `warn` or `fail`), a message, and advice."""

    level: str
    says: str
    advice: str = ""


def ok(says: str) -> Checked:
    return Checked("ok", says)


def warn(says: str, advice: str = "") -> Checked:
    return Checked("warn", says, advice)


def fail(says: str, advice: str = "") -> Checked:
    return Checked("fail", says, advice)


class Probe(NamedTuple):
    """A check, or a field of /health: an async function of a transaction, or of nothing (`outside`), which then may ask
    another system than the database."""

    extension: str
    name: str
    function: Callable[..., Awaitable[Any]]
    outside: bool = False

    @property
    def hook(self) -> Hook:
        return Hook(self.extension, self.function)


class CheckFailed(NamedTuple):
    error: BaseException

    @property
    def says(self) -> str:
        if isinstance(self.error, TimeoutError):
            return f"it took longer than {PROBE_SECONDS:g} s"
        return error_text(self.error, 500)


async def run_probe(tx: Tx, hook: Hook, *given: Any) -> Any:
    """The result of the function, or `CheckFailed`."""

    async def call() -> Any:
        return await hook.function(tx, *given)

    try:
        async with tx.savepoint():
            return await tx.call(call(), PROBE_SECONDS, partial(warn_of_blocking, *hook))
    except (Exception, SystemExit) as error:
        return CheckFailed(error)


async def run_outside(store: Store, hook: Hook) -> Any:
    """The same for a function without a transaction; `probed_store` is the store for its queries."""
    token = _store.set(store)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await hook.function()
    except (Exception, SystemExit) as error:
        return CheckFailed(error)
    finally:
        _store.reset(token)


def probed_store() -> Store | None:
    """None: no check is running."""
    return _store.get(None)


def finding(probe: Probe, found: Any) -> Checked:
    """The finding of a check. A check that does not work is a finding, too."""
    if isinstance(found, CheckFailed):
        return fail(f"the check failed: {found.says}", f"report it to the author of extension {probe.extension}")
    if not isinstance(found, Checked):
        return fail(
            f"the check returned {type(found).__name__}; a check returns ok(...), warn(...) or fail(...)",
            f"report it to the author of extension {probe.extension}",
        )
    return found
