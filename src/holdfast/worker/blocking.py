"""Sync versions of async methods, for handlers that run in a thread: each call blocks the thread until it is done."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Wait(Protocol):
    """Runs a coroutine on the event loop of the worker, and blocks until it has ended."""

    def __call__(self, work: Coroutine[Any, Any, R], /) -> R: ...


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """A sync method: it calls the method of this name on `self._wrapped`, and waits with `self._wait`."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._wait(getattr(self._wrapped, method.__name__)(*args, **kwargs))
        return result

    return call
