"""The transaction that a guard, an effect or a maintenance function is running in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from holdfast.engine.context import EngineContext
from holdfast.store import Tx


class RunningHook(NamedTuple):
    tx: Tx
    ctx: EngineContext


_running: ContextVar[RunningHook | None] = ContextVar("holdfast_hook", default=None)


@contextmanager
def running_in(tx: Tx, ctx: EngineContext) -> Iterator[None]:
    token = _running.set(RunningHook(tx, ctx))
    try:
        yield
    finally:
        _running.reset(token)


def running_hook(tx: Tx) -> RunningHook | None:
    """None: no hook is running in this transaction."""
    running = _running.get()
    return running if running is not None and running.tx is tx else None
