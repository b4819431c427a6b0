"""`Component`: a part of the engine. Each of its methods runs one function in a transaction of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper
from inspect import unwrap
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast.engine.context import EngineContext
from holdfast.engine.leases import the_only
from holdfast.errors import HoldfastError, StoreError
from holdfast.store import PostgresStore, SqliteStore, Tx, borrow

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")
_Work = Callable[Concatenate[Tx, _P], Awaitable[_Answer]]
_WorkInContext = Callable[Concatenate[Tx, EngineContext, _P], Awaitable[_Answer]]
_Method = Callable[Concatenate["Component", _P], Coroutine[Any, Any, _Answer]]


class Component:
    def __init__(self, store: PostgresStore | SqliteStore, ctx: EngineContext) -> None:
        self.store, self.ctx = store, ctx

    async def _write_through(self, connection: Any, work: Callable[[Tx], Awaitable[_Answer]]) -> _Answer:
        if connection is None:
            return await self.store.write(work)
        async with borrow(connection, self.store.dialect, self.ctx.clock, self.ctx.ids, self.ctx.later) as tx:
            await self.store.require_own(tx, connection)
            return await work(tx)


@overload
def reading(work: _WorkInContext[_P, _Answer]) -> _Method[_P, _Answer]: ...
@overload
def reading(work: _Work[_P, _Answer]) -> _Method[_P, _Answer]: ...
def reading(work: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """A method that runs `work(tx, ...)`, or `work(tx, ctx, ...)`, in a read transaction."""
    in_context = _takes_context(work)

    async def method(self: Component, *args: Any, **kwargs: Any) -> Any:
        given = (self.ctx, *args) if in_context else args
        return await self.store.read(lambda tx: work(tx, *given, **kwargs))

    return update_wrapper(method, work)


@overload
def writing(work: _WorkInContext[_P, _Answer], *, alone: bool = False) -> _Method[_P, _Answer]: ...
@overload
def writing(work: _Work[_P, _Answer], *, alone: bool = False) -> _Method[_P, _Answer]: ...
def writing(work: Callable[..., Awaitable[Any]], *, alone: bool = False) -> Callable[..., Any]:
    """The same in a write transaction; `alone`: its one statement needs none around it."""
    in_context = _takes_context(work)

    async def method(self: Component, *args: Any, **kwargs: Any) -> Any:
        given = (self.ctx, *args) if in_context else args
        return await self.store.write(lambda tx: work(tx, *given, **kwargs), alone=alone)

    return update_wrapper(method, work)


def refusing(work: _WorkInContext[_P, _Answer]) -> _Method[_P, _Answer]:
    """`writing` that raises a refusal after the commit, which keeps the record of a failed hook."""

    async def method(self: Component, /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        async def result_or_refusal(tx: Tx) -> _Answer | HoldfastError:
            try:
                return await work(tx, self.ctx, *args, **kwargs)
            except StoreError:
                raise
            except HoldfastError as refusal:
                return refusal

        return the_only([await self.store.write(result_or_refusal)])

    return update_wrapper(method, work)


def _takes_context(work: Callable[..., Any]) -> bool:
    return "ctx" in unwrap(work).__code__.co_varnames[1:2]
