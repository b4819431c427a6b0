"""The SQLite store: one writer thread with group commit, and several reader threads.

Work is a coroutine that awaits only its transaction, which never suspends here. So a thread can run the whole
coroutine, and the writer runs all pending work in one transaction, each piece in its own savepoint, with one fsync.
A small write of a caller that is alone needs no other thread: see `direct_connection`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.backoff import Backoff
from holdfast.clock import Clock, from_micros, to_micros, turn
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.ids import Ids
from holdfast.store.base import OnBlocked, Row, T, Tx, Work, check_params, has_single_rows, run_callbacks
from holdfast.store.direct_connection import DirectConnection, FileConnection
from holdfast.store.error_mapping import DatabaseLabel, map_sqlite_error
from holdfast.store.hook_guard import blocking_in_transaction, report_blocking
from holdfast.store.identity import FILE, Identity, IdentityTracker, inode_of, other_database, read_file_identity
from holdfast.store.observer import BEGIN, COMMIT, CONNECT, ObservedQuery, ObservedStep, OnQuery
from holdfast.store.queries import Query
from holdfast.store.render import SQLITE, Statement, history_afterwards, render

GROUP_MAX = 64  # pieces of work in one commit
BUSY_SECONDS = 30  # the timeout for the write lock of another process
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.25
PROGRESS_INSTRUCTIONS = 20_000  # SQLite VM instructions between two checks of the deadline: less than a millisecond
READERS = 4
WAL_TRIES_MAX, WAL_PAUSE_SECONDS = 100, 0.02
CHECKPOINT_PAGES = 1000  # 4 MiB of WAL: while the file still grows, a sync costs up to twice as much
CACHE_KIB = 64 * 1024  # per connection; the default of 2 MiB makes every claim read its pages again

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class SqliteTx(Tx):
    """SQLite has one writer: there are no row locks. A statement is a function call: none is buffered."""

    one_writer = True

    def __init__(self, connection: sqlite3.Connection, clock: Clock, on_query: OnQuery | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._on_query = on_query
        self.callbacks: list[Callable[[], None]] = []
        self._deadline: float | None = None  # of the running hook

    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]:
        if query.tables and has_single_rows(query.tables, params):
            query = query.for_one
        statement = render(query, SQLITE, limit, filters)
        run = self._run if self._deadline is None else partial(self._run_until, self._deadline)
        if self._on_query is None:
            return run(query, statement, params)
        with ObservedQuery(self._on_query, query, self._clock):
            return run(query, statement, params)

    def _run(self, query: Query, statement: Statement, params: dict[str, Any]) -> list[Row]:
        if query.values:
            return self._run_values(query, statement, params)
        cursor = self._connection.cursor()
        cursor.row_factory = None  # a caller's connection may have another one
        cursor.execute(statement.text, self._bind(query, statement, params))
        names = tuple(column[0] for column in cursor.description or ())  # none for DDL
        raw = cursor.fetchall()
        if query.recorded and raw:
            self._record(query, [row[-1] for row in raw], params)
            return _rows(names[:-1], raw)
        return _rows(names, raw)

    def _run_values(self, query: Query, statement: Statement, params: dict[str, Any]) -> list[Row]:
        """The job and its event have the same values."""
        values = params | {"now": to_micros(self._clock.now())}
        if not self._connection.execute(statement.text, values).rowcount:
            return []
        for text in history_afterwards(query, one=True):
            self._connection.execute(text, values)
        return _rows(("id",), [(values["id"],)])

    def _run_until(self, deadline: float, query: Query, statement: Statement, params: dict[str, Any]) -> list[Row]:
        """With a progress handler: a read past the deadline is interrupted; a write runs to its end, because SQLite
        would roll back the whole transaction with it."""
        reads, late = query.operation == "select", False

        def is_to_stop() -> bool:
            nonlocal late
            late = late or self._clock.monotonic() > deadline
            return late and reads

        self._connection.set_progress_handler(is_to_stop, PROGRESS_INSTRUCTIONS)
        try:
            rows = self._run(query, statement, params)
        finally:
            self._connection.set_progress_handler(None, PROGRESS_INSTRUCTIONS)
        if late:
            raise TimeoutError
        return rows

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        before = len(self.callbacks)
        self._require_transaction()
        await self._execute("SAVEPOINT hooks")
        try:
            yield
        except BaseException:
            del self.callbacks[before:]
            self._require_transaction()
            await self._execute("ROLLBACK TO hooks")
            await self._execute("RELEASE hooks")
            raise
        await self._execute("RELEASE hooks")

    def _require_transaction(self) -> None:
        """A full disk, for instance, rolls back everything, savepoints included: later statements would autocommit."""
        if not self._connection.in_transaction:
            raise StoreUnavailable("SQLite rolled back the whole transaction, nothing was written")

    async def _execute(self, sql: str) -> None:
        self._connection.execute(sql)

    async def call(self, hook: Coroutine[Any, Any, T], seconds: float, blocked: OnBlocked) -> T:
        began, outer = self._clock.monotonic(), self._deadline
        self._deadline = began + seconds
        try:
            return run_to_completion(hook)
        finally:
            self._deadline = outer
            report_blocking(self._clock.monotonic() - began, blocked)

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        self.callbacks.append(callback)

    def _bind(self, query: Query, statement: Statement, params: dict[str, Any]) -> dict[str, Any] | list[Any]:
        try:
            for rows, place in statement.times:
                if any(row[place] is not None for row in params[rows]):
                    params[rows] = [(*row[:place], _to_sqlite(row[place]), *row[place + 1 :]) for row in params[rows]]
            if query.single:
                return self._bind_single(statement, params)
            return {
                name: to_micros(self._clock.now()) if name == "now" else _to_sqlite(params[name])
                for name in statement.params
            }
        except KeyError:
            check_params(query, statement, params)
            raise

    def _bind_single(self, statement: Statement, params: dict[str, Any]) -> list[Any]:
        """Each row parameter has one row."""
        now = to_micros(self._clock.now())
        values: list[Any] = []
        for name, first, last in statement.runs:
            if last:
                values += params[name][0][first:last]
            else:
                values.append(now if name == "now" else _to_sqlite(params[name]))
        return values

    def _record(self, query: Query, moved: list[int], params: dict[str, Any]) -> None:
        """Insert the events from the rows, which contain everything that they need."""
        one = len(moved) == 1
        rowids = moved[0] if one else _encode(moved).decode()
        for text in history_afterwards(query, one=one):
            self._connection.execute(text, {"moved": rowids, "actor": params.get("actor")})


def _to_sqlite(value: Any) -> Any:
    """Times as microseconds, lists as JSON."""
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, list):
        return _encode(value).decode()
    return value


class _SqliteRow(tuple[Any, ...]):
    """A row: a tuple with access by column name."""

    __slots__ = ()
    places: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.places[key] if key.__class__ is str else key)


@lru_cache(maxsize=512)
def _row_class(names: tuple[str, ...]) -> tuple[type[_SqliteRow], tuple[int, ...]]:
    places = {name: place for place, name in enumerate(names)}
    times = tuple(place for name, place in places.items() if name.endswith("_at") or name == "at")
    return type("_SqliteRow", (_SqliteRow,), {"places": places, "__slots__": ()}), times


def _rows(names: tuple[str, ...], raw: list[tuple[Any, ...]]) -> list[Row]:
    row_class, times = _row_class(names)
    width = len(names)
    if not times:
        return [row_class(row[:width]) for row in raw]
    known: dict[int | None, datetime | None] = {None: None}  # the rows of a batch share most times
    rows: list[Row] = []
    for row in raw:
        values = list(row[:width])
        for place in times:
            micros = values[place]
            if micros not in known:
                known[micros] = from_micros(micros)
            values[place] = known[micros]
        rows.append(row_class(values))
    return rows


@dataclass
class _WriteRequest:
    """Work for the writer thread, and the future of its result."""

    work: Work[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    small: bool
    result: Any = None
    error: BaseException | None = None
    callbacks: list[Callable[[], None]] | None = None

    def settle(self) -> None:
        """Set the result. If the caller was cancelled, its work is committed anyway, and the callbacks run."""
        if self.error is not None:
            if not self.future.cancelled():
                self.future.set_exception(self.error)
            return
        if not self.future.cancelled():
            self.future.set_result(self.result)
        run_callbacks(self.callbacks or ())


class SqliteStore:
    dialect = SQLITE
    transaction_class = SqliteTx

    def __init__(self, path: Path, clock: Clock, ids: Ids) -> None:
        self.on_query: OnQuery | None = None
        self.identity = IdentityTracker()
        self.label = DatabaseLabel(f"{path}")
        self._path = path
        self._clock = clock
        self._ids = ids
        self._pending: queue.SimpleQueue[_WriteRequest | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._connections: list[SqliteConnection] = []
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-sqlite-read")
        self._writer = threading.Thread(target=self._writer_loop, name="holdfast-sqlite-write", daemon=True)
        self._direct = DirectConnection(path, self._connect, self._disconnect)
        self._callers: set[object] = set()  # of `write`, now; several event loops may share a store
        self._writing = threading.Lock()  # two connections of one process never write or checkpoint at the same moment
        self._queueing = threading.Lock()  # nothing is queued behind the end
        self._closed = False
        self._writer.start()

    @property
    def path(self) -> Path:
        return self._path

    async def close(self) -> None:
        with self._queueing:
            if self._closed:
                return
            self._closed = True
            self._pending.put(None)
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._readers.shutdown)
        with self._writing:  # another event loop may be at a direct write
            for connection in self._connections:
                connection.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed", code="store_closed")

    async def write(self, work: Work[T], *, alone: bool = False, small: bool = False, retry_locked: bool = True) -> T:
        self._require_open()
        caller = object()
        self._callers.add(caller)
        try:
            if small and len(self._callers) == 1:
                await turn()  # writes of the same moment share a commit
                self._require_open()
                if len(self._callers) == 1 and (connection := self._begin_directly()) is not None:
                    return self._write_directly(connection, work)
            loop = asyncio.get_running_loop()
            request = _WriteRequest(work, loop.create_future(), loop, small)
            self._queue(request)
            return await request.future  # type: ignore[no-any-return]
        finally:
            self._callers.remove(caller)

    def _queue(self, request: _WriteRequest) -> None:
        with self._queueing:
            self._require_open()
            self._pending.put(request)

    def _begin_directly(self) -> SqliteConnection | None:
        """None: the writer thread is at work, or is to make this write."""
        if not self._writing.acquire(blocking=False):
            return None
        connection = None
        try:
            connection = self._direct.begun()
        finally:
            if connection is None:
                self._writing.release()
        return connection

    def _write_directly(self, connection: SqliteConnection, work: Work[T]) -> T:
        """In the thread of the event loop. The transaction has begun."""
        began = self._clock.monotonic()
        tx = SqliteTx(connection, self._clock, self.on_query)
        try:
            result: T = run_to_completion(work(tx))
            with ObservedStep(self.on_query, COMMIT, self._clock):
                self._commit(connection)
        except BaseException as error:
            if _rolled_back(connection) is None:
                self._direct.drop()
            if isinstance(error, sqlite3.Error):
                raise map_sqlite_error(error) from error
            raise
        finally:
            self._writing.release()
        self._direct.took(self._clock.monotonic() - began)
        run_callbacks(tx.callbacks)
        return result

    async def identify(self) -> Identity | None:
        """Read the identity of the database."""
        await self.read(_no_op)
        return self.identity.current

    async def require_own(self, tx: Tx, connection: Any) -> None:
        """Raise unless a caller's connection has this file open, not another one with the same tables."""
        row = await tx.one(FILE)
        path = str(row["file"]) if row is not None else ""
        if not path or inode_of(Path(path)) != inode_of(self._path):
            raise other_database(path or "a database in memory", str(self._path.absolute()))

    async def read(self, work: Work[T]) -> T:
        self._require_open()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    # -- in a reader thread -----------------------------------------------------------------------------------

    def _read(self, work: Work[T]) -> T:
        connection = self._local.connection = self._current(getattr(self._local, "connection", None))
        try:
            connection.execute("BEGIN")
            tx = SqliteTx(connection, self._clock, self.on_query)
            try:
                result: T = run_to_completion(work(tx))
            finally:
                connection.rollback()
            run_callbacks(tx.callbacks)
            return result
        except sqlite3.Error as error:
            raise map_sqlite_error(error) from error

    # -- in the writer thread ---------------------------------------------------------------------------------

    def _writer_loop(self) -> None:
        connection: SqliteConnection | None = None
        while (group := self._next_group()) is not None:
            with self._writing:
                connection = self._write(connection, group)
            self._resolve(group)
            if connection is not None and any(request.small for request in group):
                self._open_direct()

    def _write(self, connection: SqliteConnection | None, group: list[_WriteRequest]) -> SqliteConnection | None:
        """The connection, if it can still be used."""
        try:
            connection = self._current(connection)
            with ObservedStep(self.on_query, BEGIN, self._clock):
                self._begin(connection)
            self._write_group(connection, group)
            return connection
        except Exception as error:
            failure = error if isinstance(error, HoldfastError) else map_sqlite_error(error)
            for request in group:
                request.error = request.error or failure
            return _rolled_back(connection)

    def _open_direct(self) -> None:
        try:
            self._direct.open()
        except (sqlite3.Error, OSError):
            log.debug("no connection for direct writes", exc_info=True)

    def _next_group(self) -> list[_WriteRequest] | None:
        first = self._pending.get()
        if first is None:
            return None
        group = [first]
        while len(group) < GROUP_MAX:
            try:
                request = self._pending.get_nowait()
            except queue.Empty:
                break
            if request is None:
                self._pending.put(None)
                break
            group.append(request)
        return group

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Take the write lock; retry with jitter while another process holds it, up to BUSY_SECONDS."""
        deadline = self._clock.monotonic() + BUSY_SECONDS
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                if self._clock.monotonic() > deadline:
                    prefix = f"lock timeout after {BUSY_SECONDS} s, nothing was written: another process holds "
                    raise StoreUnavailable(f"{prefix}the database", full=f"{prefix}{self._path.name}") from error
            self._clock.block(backoff.next())

    def _write_group(self, connection: sqlite3.Connection, group: list[_WriteRequest]) -> None:
        for request in group:
            if request.future.cancelled():  # the caller was cancelled before the work began
                continue
            if len(group) > 1:
                connection.execute("SAVEPOINT piece")
            tx = SqliteTx(connection, self._clock, self.on_query)
            try:
                request.result = run_to_completion(request.work(tx))
                request.callbacks = tx.callbacks
                if len(group) > 1:
                    connection.execute("RELEASE piece")
            except BaseException as error:
                request.error = map_sqlite_error(error) if isinstance(error, sqlite3.Error) else error
                if not connection.in_transaction:  # a full disk rolls back everything
                    raise
                if len(group) == 1:
                    connection.rollback()
                    return
                connection.execute("ROLLBACK TO piece")
                connection.execute("RELEASE piece")
        began = self._clock.monotonic()
        with ObservedStep(self.on_query, COMMIT, self._clock):
            self._commit(connection)
        self._direct.took(self._clock.monotonic() - began)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:  # still open: nothing was committed
                connection.rollback()
                raise StoreUnavailable(f"SQLite could not commit, nothing was written: {error}") from error
            raise OutcomeUnknown(f"the outcome of a SQLite commit is unknown ({error}); repeat the request") from error

    def _resolve(self, group: list[_WriteRequest]) -> None:
        """Set the results of the group, with one wake-up of each event loop."""
        loops = {id(request.loop): request.loop for request in group}
        for loop in loops.values():
            requests = [request for request in group if request.loop is loop]
            try:
                loop.call_soon_threadsafe(lambda requests=requests: [request.settle() for request in requests])  # type: ignore[misc]
            except RuntimeError:  # the loop is closed
                continue

    def _current(self, connection: SqliteConnection | None) -> SqliteConnection:
        """A connection to the file that is at the path now: a restore may have replaced it."""
        file = inode_of(self._path)
        if file is None:
            raise StoreUnavailable(
                "the database file is missing; restore it, and this process opens it again",
                full=f"{self._path} is missing; restore it, and this process opens it again",
            )
        if connection is not None and connection.file == file:
            return connection
        if connection is not None:
            self._disconnect(connection)
        return self._connect()

    def _connect(self) -> SqliteConnection:
        with ObservedStep(self.on_query, CONNECT, self._clock):
            connection = connect(self._path, self._ids)
            self.identity.update(read_file_identity(connection))
        self._connections.append(connection)
        return connection

    def _disconnect(self, connection: SqliteConnection) -> None:
        self._connections.remove(connection)
        connection.close()


class SqliteConnection(FileConnection):
    """A connection of a store."""


async def _no_op(_: Tx) -> None:
    """Only opens the connection."""


def connect(path: Path, ids: Ids) -> SqliteConnection:
    """To the file that is at the path once it is open: a restore may replace it meanwhile."""
    while True:
        path.touch(mode=0o600)  # payloads are private; the WAL and lock files get the same mode
        file = inode_of(path)
        try:
            connection = _connect(path, ids)
        except sqlite3.Error:
            if inode_of(path) == file:
                raise
            continue
        if inode_of(path) == file:
            connection.file = file
            return connection
        connection.close()


def _connect(path: Path, ids: Ids) -> SqliteConnection:
    connection = sqlite3.connect(
        path, timeout=1, isolation_level=None, check_same_thread=False, cached_statements=512, factory=SqliteConnection
    )
    try:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        register_functions(connection, ids)
    except BaseException:
        connection.close()  # Python 3.13 warns of unclosed connections
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Retries: when several processes open a new file, one switches to WAL, and SQLite fails the others at once."""
    for tried in range(1, WAL_TRIES_MAX + 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or tried == WAL_TRIES_MAX:
                raise
            Clock().block(WAL_PAUSE_SECONDS)


def register_functions(connection: sqlite3.Connection, ids: Ids) -> None:
    connection.create_function("holdfast_new_token", 0, ids.token)


def run_to_completion(work: Coroutine[Any, Any, T] | Any) -> T:
    """Run a coroutine to completion in this thread. It may await its transaction and nothing else."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "no running event loop" not in str(error):
            raise  # else: it tried to await something else
    work.close()
    raise blocking_in_transaction()


def _rolled_back(connection: SqliteConnection | None) -> SqliteConnection | None:
    """Roll back and return the connection; None if it cannot roll back."""
    try:
        if connection is not None and connection.in_transaction:
            connection.rollback()
        return connection
    except sqlite3.Error:
        return None
