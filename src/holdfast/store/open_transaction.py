"""A transaction as a context manager: `async with transaction(store) as tx`.

Unlike the work of `write`, the block cannot be retried by the store: if the database rolled back, `StoreUnavailable` is
raised and the caller retries. On SQLite it blocks all other writers: keep it short.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from holdfast.errors import StoreUnavailable
from holdfast.store.base import Row, Tx
from holdfast.store.connect import IDLE_IN_TRANSACTION_SECONDS
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import Query
from holdfast.store.sqlite import SqliteStore, run_to_completion

HELD_SECONDS_MAX = IDLE_IN_TRANSACTION_SECONDS  # idle between two statements, also on SQLite
_IDLE = (
    f"a transaction was held open for {HELD_SECONDS_MAX:g} s without a statement and rolled back, nothing was "
    "written; await only its own statements inside it, because other writers wait for it"
)

# asyncpg raises InternalClientError first for a connection that the server has closed.
_OF_DATABASE = (sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_Step = Callable[[Tx], Awaitable[Any]]
_T = TypeVar("_T")


@asynccontextmanager
async def transaction(store: PostgresStore | SqliteStore) -> AsyncIterator[Tx]:
    """Commit at the end of the block; roll back if it raises."""
    held = _OpenSqlite() if isinstance(store, SqliteStore) else _OpenPostgres()
    running: asyncio.Future[Any] = asyncio.ensure_future(store.write(held.work))
    began: asyncio.Future[Any] = held.began
    try:
        await asyncio.wait([running, began], return_when=asyncio.FIRST_COMPLETED)
        if not held.began.done():
            await running  # raises why it could not begin
        yield held.began.result()
    except BaseException as error:
        held.end(error if isinstance(error, _OF_DATABASE) else _BlockFailed())
        await _wait_for_end(running)
        if running.cancelled() or isinstance(running.exception(), _BlockFailed | None):
            raise
        await running  # raises the mapped error
        raise
    held.end(None)
    await asyncio.shield(running)


class OneTransaction:
    """Reads, and one open write transaction at most: of a request to a route, or of a command."""

    def __init__(self, store: PostgresStore | SqliteStore, owner: str) -> None:
        self._store, self._owner = store, owner
        self._tx: Tx | None = None

    async def read(self, work: Callable[[Tx], Awaitable[_T]]) -> _T:
        """`await request.read(lambda tx: tx.all(ext.q.notes))`: queries that write nothing and block no writes."""
        if self._tx is not None:
            return await work(self._tx)
        return await self._store.read(work)

    @asynccontextmanager
    async def tx(self) -> AsyncIterator[Tx]:
        """One write transaction: committed at the end of the block, rolled back if that raises. On SQLite it blocks all
        other writes."""
        if self._tx is not None:
            raise TypeError(f"this {self._owner} already has an open transaction")
        async with transaction(self._store) as tx:
            self._tx = tx
            try:
                yield tx
            finally:
                self._tx = None


async def _wait_for_end(running: asyncio.Future[Any]) -> None:
    """Wait for the end, also if the caller is cancelled again."""
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            continue


class _OpenPostgres:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.began: asyncio.Future[Tx] = loop.create_future()
        self._end: asyncio.Future[BaseException | None] = loop.create_future()

    async def work(self, tx: Tx) -> None:
        if self.began.done():
            raise StoreUnavailable("the database rolled the transaction back, nothing was written: try again")
        self.began.set_result(tx)
        if (error := await self._end) is not None:
            raise error

    def end(self, error: BaseException | None) -> None:
        if not self.began.done():
            self.began.cancel()
        self._end.set_result(error)


class _BlockFailed(Exception):
    """The block raised an error that is not the database's: roll back."""


class _OpenSqlite:
    """The writer thread runs one statement after another, and waits for the next."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.began: asyncio.Future[Tx] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()  # no more statements run
        self._steps: queue.SimpleQueue[tuple[_Step, Future[Any]] | BaseException | None] = queue.SimpleQueue()

    async def work(self, tx: Tx) -> None:
        self._loop.call_soon_threadsafe(_settle, self.began, _RemoteTx(tx, self._ask))
        try:
            while (step := self._next()) is not None:
                if isinstance(step, BaseException):
                    raise step
                self._do(tx, *step)
        finally:
            self._loop.call_soon_threadsafe(_settle, self._over, None)

    def _next(self) -> tuple[_Step, Future[Any]] | BaseException | None:
        try:
            return self._steps.get(timeout=HELD_SECONDS_MAX)
        except queue.Empty:
            raise StoreUnavailable(_IDLE) from None

    def _do(self, tx: Tx, step: _Step, answer: Future[Any]) -> None:
        try:
            answer.set_result(run_to_completion(step(tx)))
        except Exception as error:
            answer.set_exception(error)

    async def _ask(self, step: _Step) -> Any:
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()
        self._steps.put((step, answer))
        waiting = asyncio.wrap_future(answer)
        try:
            await asyncio.wait({waiting, self._over}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
        finally:
            waiting.cancel()
        raise StoreUnavailable(_IDLE)

    def end(self, error: BaseException | None) -> None:
        if not self.began.done():
            self.began.cancel()
        self._steps.put(error)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


class _RemoteTx(Tx):
    """The transaction in the event loop: its statements run in the writer thread."""

    def __init__(self, tx: Tx, ask: Callable[[_Step], Awaitable[Any]]) -> None:
        self._tx, self._ask = tx, ask

    async def all(self, query: Query, **params: Any) -> list[Row]:
        rows: list[Row] = await self._ask(lambda tx: tx.all(query, **params))
        return rows

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        saved = self._tx.savepoint()
        await self._ask(lambda _: saved.__aenter__())
        try:
            yield
        except BaseException as error:
            raised = error
            await self._ask(lambda _: _left(saved, raised))
            raise
        await self._ask(lambda _: saved.__aexit__(None, None, None))

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        self._tx.after_commit(callback, hint=hint)


async def _left(saved: AbstractAsyncContextManager[None], error: BaseException) -> None:
    with suppress(type(error)):  # it is raised in the event loop
        await saved.__aexit__(type(error), error, error.__traceback__)
