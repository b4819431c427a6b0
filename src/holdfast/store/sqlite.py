"""The store on SQLite: one writer thread that commits for many at once, and readers beside it.

Work is a coroutine that only ever awaits its transaction, and a transaction here never really waits. So a thread can
run the whole coroutine by itself, and the writer can run all the work that has piled up inside one transaction, each
piece in its own savepoint, and pay for one fsync.
"""

from __future__ import annotations

import asyncio
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
from holdfast.clock import Clock, from_micros, to_micros
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.ids import Ids
from holdfast.store.base import BEGIN, COMMIT, CONNECT, Blocked, Row, T, Tx, Watch, Watched, Work, check_params, tell
from holdfast.store.error_mapping import Named, refusal
from holdfast.store.hook_guard import blocking_in_transaction, tell_blocked
from holdfast.store.identity import FILE, Identities, Identity, file_of, of_file, other_database
from holdfast.store.queries import Query
from holdfast.store.render import SQLITE, Statement, history_afterwards, render

GROUP_MAX = 64  # pieces of work in one commit
BUSY_SECONDS = 30  # how long another process may hold the file before we give up
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.25
INSTRUCTIONS = 20_000  # of SQLite's own between two looks at the clock: less than a millisecond
READERS = 4
WAL_TRIES_MAX, WAL_PAUSE_SECONDS = 100, 0.02
CHECKPOINT_PAGES = 4000  # 16 MiB of log: a page that changes often is then copied back once instead of many times
CACHE_KIB = 64 * 1024  # per connection; the default of 2 MiB makes every claim read its pages again

_encode = msgspec.json.Encoder().encode


class SqliteTx:
    alone = False
    lock_seconds: float | None = None  # there is one writer, and no other transaction to wait for
    lock_errors: tuple[type[Exception], ...] = ()

    def __init__(self, connection: sqlite3.Connection, clock: Clock, watch: Watch | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._watch = watch
        self.callbacks: list[Callable[[], None]] = []
        self._deadline: float | None = None  # of the hook that runs now

    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]:
        statement = render(query, SQLITE, limit, filters)
        run = self._run if self._deadline is None else partial(self._run_in_time, self._deadline)
        if self._watch is None:
            return run(query, statement, params)
        began = self._clock.monotonic()
        try:
            rows = run(query, statement, params)
        except BaseException as error:
            self._watch(query, self._clock.monotonic() - began, error)
            raise
        self._watch(query, self._clock.monotonic() - began, None)
        return rows

    def _run(self, query: Query, statement: Statement, params: dict[str, Any]) -> list[Row]:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # a borrowed connection may make its rows into something else
        cursor.execute(statement.text, self._bind(query, statement, params))
        names = tuple(column[0] for column in cursor.description or ())  # none, where a table is made
        raw = cursor.fetchall()
        if query.recorded and raw:
            self._record(query, [row[-1] for row in raw], params)
            return _rows(names[:-1], raw)
        return _rows(names, raw)

    def _run_in_time(self, deadline: float, query: Query, statement: Statement, params: dict[str, Any]) -> list[Row]:
        """SQLite asks after every so many of its own instructions whether to go on. A read that takes longer is
        interrupted; a write comes to its end, because SQLite would undo the whole transaction with it."""
        reads, late = query.operation == "select", False

        def is_to_stop() -> bool:
            nonlocal late
            late = late or self._clock.monotonic() > deadline
            return late and reads

        self._connection.set_progress_handler(is_to_stop, INSTRUCTIONS)
        try:
            rows = self._run(query, statement, params)
        finally:
            self._connection.set_progress_handler(None, INSTRUCTIONS)
        if late:
            raise TimeoutError
        return rows

    async def one(self, query: Query, **params: Any) -> Row | None:
        rows = await self.all(query, **params)
        return rows[0] if rows else None

    async def run(self, query: Query, **params: Any) -> None:
        await self.all(query, **params)

    async def flush(self) -> None:
        """Nothing is ever kept back: a statement here is a function call."""

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        told = len(self.callbacks)
        self._require_transaction()
        await self._execute("SAVEPOINT hooks")
        try:
            yield
        except BaseException:
            del self.callbacks[told:]
            self._require_transaction()
            await self._execute("ROLLBACK TO hooks")
            await self._execute("RELEASE hooks")
            raise
        await self._execute("RELEASE hooks")

    def _require_transaction(self) -> None:
        """A full disk, for instance, undoes all of it, savepoints included: what follows would commit by itself."""
        if not self._connection.in_transaction:
            raise StoreUnavailable("SQLite undid the whole transaction, nothing was written")

    async def _execute(self, sql: str) -> None:
        self._connection.execute(sql)

    async def call(self, hook: Coroutine[Any, Any, T], seconds: float, blocked: Blocked) -> T:
        began, outer = self._clock.monotonic(), self._deadline
        self._deadline = began + seconds
        try:
            return finish(hook)
        finally:
            self._deadline = outer
            tell_blocked(self._clock.monotonic() - began, blocked)

    async def wait_for_locks(self) -> None:
        """There is one writer, and no lock to wait for."""

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        self.callbacks.append(callback)

    def _bind(self, query: Query, statement: Statement, params: dict[str, Any]) -> dict[str, Any]:
        try:
            for rows, place in statement.times:
                params[rows] = [(*row[:place], _stored(row[place]), *row[place + 1 :]) for row in params[rows]]
            return {
                name: to_micros(self._clock.now()) if name == "now" else _stored(params[name])
                for name in statement.params
            }
        except KeyError:
            check_params(query, statement, params)
            raise

    def _record(self, query: Query, moved: list[int], params: dict[str, Any]) -> None:
        """The rows themselves now hold everything that their history says."""
        rowids = _encode(moved).decode()
        for text in history_afterwards(query):
            self._connection.execute(text, {"moved": rowids, "actor": params.get("actor")})


def _stored(value: Any) -> Any:
    """Times are microseconds, lists are JSON."""
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, list):
        return _encode(value).decode()
    return value


class _Tuple(tuple[Any, ...]):
    """A row: a tuple that also answers to column names."""

    __slots__ = ()
    places: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.places[key] if key.__class__ is str else key)


@lru_cache(maxsize=512)
def _row_class(names: tuple[str, ...]) -> tuple[type[_Tuple], tuple[int, ...]]:
    places = {name: place for place, name in enumerate(names)}
    times = tuple(place for name, place in places.items() if name.endswith("_at") or name == "at")
    return type("_Tuple", (_Tuple,), {"places": places, "__slots__": ()}), times


def _rows(names: tuple[str, ...], raw: list[tuple[Any, ...]]) -> list[Row]:
    row_class, times = _row_class(names)
    width = len(names)
    if not times:
        return [row_class(row[:width]) for row in raw]
    known: dict[int | None, datetime | None] = {None: None}  # rows of one batch share most of their times
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
class _Piece:
    """Work on its way to the writer, and the future that waits for it."""

    work: Work[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: BaseException | None = None
    callbacks: list[Callable[[], None]] | None = None

    def settle(self) -> None:
        """A caller that was cancelled gets no answer; what it wrote is committed all the same, and is told of."""
        if self.error is not None:
            if not self.future.cancelled():
                self.future.set_exception(self.error)
            return
        if not self.future.cancelled():
            self.future.set_result(self.result)
        tell(self.callbacks or ())


class SqliteStore:
    dialect = SQLITE
    transaction_class = SqliteTx

    def __init__(self, path: Path, clock: Clock, ids: Ids) -> None:
        self.watch: Watch | None = None
        self.identities = Identities()
        self.named = Named(f"{path}")
        self._path = path
        self._clock = clock
        self._ids = ids
        self._waiting: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._connections: list[SqliteConnection] = []
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-sqlite-read")
        self._writer = threading.Thread(target=self._write_for_all, name="holdfast-sqlite-write", daemon=True)
        self._closed = False
        self._writer.start()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._waiting.put(None)
            await asyncio.to_thread(self._writer.join)
            await asyncio.to_thread(self._readers.shutdown)
            for connection in self._connections:
                connection.close()

    async def write(self, work: Work[T], *, alone: bool = False, retry_locked: bool = True) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed", code="store_closed")
        loop = asyncio.get_running_loop()
        piece = _Piece(work, loop.create_future(), loop)
        self._waiting.put(piece)
        return await piece.future  # type: ignore[no-any-return]

    async def identify(self) -> Identity | None:
        """Which database this is, asked now."""
        await self.read(_nothing)
        return self.identities.now

    async def require_own(self, tx: Tx, connection: Any) -> None:
        """A caller's connection must have this file open, not another one that has the same tables."""
        row = await tx.one(FILE)
        path = str(row["file"]) if row is not None else ""
        if not path or file_of(Path(path)) != file_of(self._path):
            raise other_database(path or "a database in memory", str(self._path.absolute()))

    async def read(self, work: Work[T]) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed", code="store_closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    # -- in a reader's thread ---------------------------------------------------------------------------------

    def _read(self, work: Work[T]) -> T:
        connection = self._local.connection = self._current(getattr(self._local, "connection", None))
        try:
            connection.execute("BEGIN")
            tx = SqliteTx(connection, self._clock, self.watch)
            try:
                result: T = finish(work(tx))
            finally:
                connection.rollback()
            tell(tx.callbacks)
            return result
        except sqlite3.Error as error:
            raise in_our_words(error) from error

    # -- in the writer's thread -------------------------------------------------------------------------------

    def _write_for_all(self) -> None:
        connection: SqliteConnection | None = None
        while (group := self._next_group()) is not None:
            try:
                connection = self._current(connection)
                with Watched(self.watch, BEGIN, self._clock):
                    self._begin(connection)
                self._write_group(connection, group)
            except Exception as error:
                failure = error if isinstance(error, HoldfastError) else in_our_words(error)
                for piece in group:
                    piece.error = piece.error or failure
                connection = _undone(connection)
            self._answer(group)

    def _next_group(self) -> list[_Piece] | None:
        first = self._waiting.get()
        if first is None:
            return None
        group = [first]
        while len(group) < GROUP_MAX:
            try:
                piece = self._waiting.get_nowait()
            except queue.Empty:
                break
            if piece is None:
                self._waiting.put(None)
                break
            group.append(piece)
        return group

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Other processes write to the same file: wait for our turn, with jitter, but not for ever."""
        deadline = self._clock.monotonic() + BUSY_SECONDS
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
                if self._clock.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"another process has held the database file for {BUSY_SECONDS} s; nothing was written",
                        full=f"another process has held {self._path.name} for {BUSY_SECONDS} s; nothing was written",
                    ) from error
            self._clock.block(backoff.next())

    def _write_group(self, connection: sqlite3.Connection, group: list[_Piece]) -> None:
        for piece in group:
            if piece.future.cancelled():  # nobody waits any more, and nothing has been done yet
                continue
            connection.execute("SAVEPOINT piece")
            tx = SqliteTx(connection, self._clock, self.watch)
            try:
                piece.result = finish(piece.work(tx))
                piece.callbacks = tx.callbacks
                connection.execute("RELEASE piece")
            except BaseException as error:
                piece.error = in_our_words(error) if isinstance(error, sqlite3.Error) else error
                if not connection.in_transaction:  # a full disk rolls everything back by itself
                    raise
                connection.execute("ROLLBACK TO piece")
                connection.execute("RELEASE piece")
        with Watched(self.watch, COMMIT, self._clock):
            self._commit(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:  # SQLite says it is still open: nothing was committed
                connection.rollback()
                raise StoreUnavailable(f"SQLite could not commit, nothing was written: {error}") from error
            raise OutcomeUnknown(f"SQLite lost the outcome of a commit ({error}); repeat the request") from error

    def _answer(self, group: list[_Piece]) -> None:
        """One wake-up of the event loop for the whole group."""
        loops = {id(piece.loop): piece.loop for piece in group}
        for loop in loops.values():
            pieces = [piece for piece in group if piece.loop is loop]
            try:
                loop.call_soon_threadsafe(lambda pieces=pieces: [piece.settle() for piece in pieces])  # type: ignore[misc]
            except RuntimeError:  # the loop is gone, and with it everybody who waited
                continue

    def _current(self, connection: SqliteConnection | None) -> SqliteConnection:
        """A connection to the file that has our path now: it may have been replaced, as a restore does."""
        file = file_of(self._path)
        if file is None:
            raise StoreUnavailable(
                "the database file is gone; restore it, and this process goes on with it",
                full=f"{self._path} is gone; restore it, and this process goes on with it",
            )
        if connection is not None and connection.file == file:
            return connection
        if connection is not None:
            self._connections.remove(connection)
            connection.close()
        return self._connect()

    def _connect(self) -> SqliteConnection:
        with Watched(self.watch, CONNECT, self._clock):
            connection = connect(self._path, self._ids)
            self.identities.see(of_file(connection))
        self._connections.append(connection)
        return connection


class SqliteConnection(sqlite3.Connection):
    file: tuple[int, int] | None = None  # that it has open, wherever its path leads by now


async def _nothing(_: Tx) -> None:
    """Opening the connection is what it is for."""


def connect(path: Path, ids: Ids) -> SqliteConnection:
    path.touch(mode=0o600)  # payloads are nobody else's business; the files beside it inherit this
    connection = sqlite3.connect(
        path, timeout=1, isolation_level=None, check_same_thread=False, cached_statements=512, factory=SqliteConnection
    )
    try:
        connection.file = file_of(path)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        prepare(connection, ids)
    except BaseException:
        connection.close()  # Python 3.13 warns of one that was left open
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Of several processes that open a new file at once one changes it, and SQLite does not let the others wait."""
    for _ in range(WAL_TRIES_MAX - 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            Clock().block(WAL_PAUSE_SECONDS)
    connection.execute("PRAGMA journal_mode = WAL")


def prepare(connection: sqlite3.Connection, ids: Ids) -> None:
    connection.create_function("holdfast_new_token", 0, ids.token)


def finish(work: Coroutine[Any, Any, T] | Any) -> T:
    """Run a coroutine to its end in this thread. It may await its transaction and nothing else."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "no running event loop" not in str(error):
            raise  # else: it wanted a loop in order to wait
    work.close()
    raise blocking_in_transaction()


def _undone(connection: SqliteConnection | None) -> SqliteConnection | None:
    """The connection without what it had begun; one that cannot undo it is not used again."""
    try:
        if connection is not None and connection.in_transaction:
            connection.rollback()
        return connection
    except sqlite3.Error:
        return None


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def in_our_words(error: BaseException) -> HoldfastError:
    text = str(error)
    if text.startswith("HF00"):
        return refusal(text[:5], text[6:]) or StoreError(text)
    code = ""
    if "no such table" in text or "no such column" in text:
        code = "missing_table"
    elif isinstance(error, sqlite3.IntegrityError):
        code = "constraint"
    elif isinstance(error, sqlite3.DataError):
        code = "value"
    return refusal(code, text) or StoreUnavailable(f"SQLite refused: {text}", code="store_refused")
