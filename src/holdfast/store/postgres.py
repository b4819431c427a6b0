"""The PostgreSQL store: a connection pool, retries, transactions, and the error mapping of PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import asyncpg

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, Locked, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.ids import Ids
from holdfast.store.array_codecs import use_codecs
from holdfast.store.base import OnBlocked, Row, T, Tx, Work, check_params, has_single_rows, run_callbacks
from holdfast.store.connect import DATABASE_ERRORS, open_connection, session_settings, transaction_settings
from holdfast.store.dead_connections import DeadConnectionDetector
from holdfast.store.error_mapping import DEFAULT_LABEL, driver_message, failure_kind, map_postgres_error, unreachable
from holdfast.store.hook_guard import call
from holdfast.store.identity import Identity, IdentityTracker, identity_query, other_database, read_identity
from holdfast.store.observer import BEGIN, COMMIT, CONNECT, ObservedQuery, ObservedStep, OnQuery
from holdfast.store.pool import PostgresPool
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES, Statement, render

log = logging.getLogger(__name__)

TRIES_MAX = 6
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.03, 1.0
CONNECT_SECONDS = 10.0
ROLLBACK_SECONDS = 1.0
COMMAND_SECONDS = 30.0  # the statement timeout: the outcome is unknown
LOCK_SECONDS = 1.0  # the lock timeout of statements with {lock_timeout}
ABANDONED_SECONDS = 2.0  # a statement abandoned after this long: idle connections may be half-open too

# The server function that warns when the wait for a synchronous standby is canceled. The warning text is localized.
WAIT_FOR_STANDBY = "SyncRepWaitForLSN"

# The server rolled back, or never got the statement: running the work again is safe.
_SAFE_TO_RETRY = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # "cannot switch to state": the server has just closed this connection
)
# The connection was lost during a statement: its outcome is unknown.
_CONNECTION_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    OSError,
    TimeoutError,
)

_TRANSACTION = ("BEGIN", "COMMIT", "ROLLBACK")
_NO_LOCK_TIMEOUT = "SET LOCAL lock_timeout TO DEFAULT"
_SAVEPOINT = ("SAVEPOINT hooks", "RELEASE SAVEPOINT hooks", "ROLLBACK TO SAVEPOINT hooks; RELEASE SAVEPOINT hooks")


class PostgresTx(Tx):
    lock_seconds: float | None = LOCK_SECONDS
    lock_errors: tuple[type[Exception], ...] = (asyncpg.LockNotAvailableError,)
    deadlock_errors: tuple[type[Exception], ...] = (asyncpg.DeadlockDetectedError,)

    def __init__(self, connection: Any, clock: Clock, *, alone: bool = False, on_query: OnQuery | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._on_query = on_query
        self.alone = alone
        self.callbacks: list[Callable[[], None]] = []
        self.wrote = False
        self._nested = 0
        self._buffered: list[tuple[str, list[list[Any]]]] = []  # buffered: a statement, and its argument lists
        self._lifts_lock_timeout = False  # with the next command

    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]:
        if self._buffered or self._lifts_lock_timeout:
            await self.flush()
        if query.tables and has_single_rows(query.tables, params):
            query = query.for_one
        statement = render(query, POSTGRES, limit, filters)
        values = bind(query, statement, params, self._clock)
        rows: list[Row]
        if self._on_query is None:
            rows = await self._connection.fetch(statement.text, *values)
        else:
            with ObservedQuery(self._on_query, query, self._clock):
                rows = await self._connection.fetch(statement.text, *values)
        self.wrote = self.wrote or not query.text.startswith("SELECT")
        return rows

    async def run(self, query: Query, **params: Any) -> None:
        statement = render(query, POSTGRES)
        values = bind(query, statement, params, self._clock)
        if not self._buffered or self._buffered[-1][0] != statement.text:
            self._buffered.append((statement.text, []))
        self._buffered[-1][1].append(values)

    async def flush(self) -> None:
        buffered, self._buffered = self._buffered, []
        if self._lifts_lock_timeout:
            await self._execute("")
        for text, values in buffered:
            await self._connection.executemany(text, values)
            self.wrote = True

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        outermost = self.alone and not self._nested
        begin, release, undo = _TRANSACTION if outermost else _SAVEPOINT
        if self._buffered:
            await self.flush()
        before = len(self.callbacks)
        await self._execute(begin)
        self._nested += 1
        try:
            yield
            await self.flush()
        except BaseException:
            self._buffered.clear()
            del self.callbacks[before:]
            await self._execute(undo)
            raise
        finally:
            self._nested -= 1
        if outermost:
            await _commit(self._connection)
        else:
            await self._release(release, undo)

    async def _release(self, release: str, undo: str) -> None:
        """PostgreSQL rejects the RELEASE if a statement had failed and its error was swallowed."""
        try:
            await self._execute(release)
        except asyncpg.InFailedSQLTransactionError as error:
            await self._execute(undo)
            raise swallowed_error() from error

    async def _execute(self, sql: str) -> None:
        if self._lifts_lock_timeout:
            self._lifts_lock_timeout, sql = False, f"{_NO_LOCK_TIMEOUT}; {sql}"
        await self._connection.execute(sql)

    async def call(self, hook: Coroutine[Any, Any, T], seconds: float, blocked: OnBlocked) -> T:
        return await call(hook, seconds, self._clock, lambda: bool(self._connection.asked_at), blocked)

    async def wait_for_locks(self) -> None:
        if self.lock_seconds is not None:  # None in a caller's transaction
            self._lifts_lock_timeout = True

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        self.callbacks.append(callback)


def bind(query: Query, statement: Statement, params: dict[str, Any], clock: Clock) -> list[Any]:
    """The arguments in order; a list of tuples becomes one array per column."""
    try:
        values: list[Any] = []
        if query.single:
            for name, first, last in statement.runs:
                if last:
                    values += params[name][0][first:last]
                else:
                    values.append(clock.database_now() if name == "now" else params[name])
            return values
        columns: dict[str, list[tuple[Any, ...]]] = {}
        for name, place in statement.places:
            if place is None:
                values.append(clock.database_now() if name == "now" else params[name])
            else:
                if name not in columns:
                    columns[name] = list(zip(*params[name], strict=True))
                column = columns[name][place] if columns[name] else ()
                # unnest pads shorter arrays with NULL, so a column of NULLs need not be sent.
                values.append([] if place and column.count(None) == len(column) else list(column))
        return values
    except KeyError:
        check_params(query, statement, params)
        raise


class PostgresStore:
    dialect = POSTGRES
    transaction_class = PostgresTx

    def __init__(
        self,
        connections: PostgresPool,
        clock: Clock,
        ids: Ids,
        *,
        pooled: bool,
        detector: DeadConnectionDetector | None,
        identity: IdentityTracker,
    ) -> None:
        self.identity = identity
        self._verified: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # callers' connections to this database
        self.on_query: OnQuery | None = None
        self._connections = connections
        self._detector = detector
        self._pooled = pooled
        self._closed = False
        self.label = DEFAULT_LABEL
        self._clock = clock
        self._ids = ids

    @classmethod
    async def open(cls, url: str, clock: Clock, ids: Ids, *, connections: int = 10) -> PostgresStore:
        identity = IdentityTracker()
        try:
            pooled = await _behind_pooler(url, identity)
        except DATABASE_ERRORS as error:
            raise unreachable(url, error) from error
        connect = partial(_connect, url, pooled=pooled, identity=identity)
        pool = PostgresPool(connect, connections, clock)
        detector = None if pooled else DeadConnectionDetector(url, pool)
        return cls(pool, clock, ids, pooled=pooled, detector=detector, identity=identity)

    async def identify(self) -> Identity | None:
        """Query the identity of the database."""

        async def work(tx: Tx) -> None:
            self.identity.update(Identity.from_row(await tx.one(identity_query(self.identity.current))))

        await self.read(work)
        return self.identity.current

    async def require_own(self, tx: Tx, connection: Any) -> None:
        """Raise unless a caller's connection is to this database, not to another with the same tables."""
        own = self.identity.current
        connection = getattr(connection, "_con", connection)  # without the wrapper of a pool
        if own is None or self._remembered(connection) == own.database:
            return
        try:
            found = Identity.from_row(await tx.one(identity_query(own)))
        except Exception as error:
            if "42P01" not in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None)):  # psycopg2: pgcode
                raise
            found = None
        if found is None or found.database != own.database:
            raise other_database("a database that was never migrated" if found is None else found.name, own.name)
        with suppress(TypeError):  # the connections of some drivers cannot be weakly referenced
            self._verified[connection] = own.database

    def _remembered(self, connection: Any) -> Any:
        with suppress(TypeError):
            return self._verified.get(connection)
        return None

    async def close(self) -> None:
        self._closed = True
        await self._connections.close()
        if self._detector is not None:
            await self._detector.close()

    def hold(self, key: int, lost: Callable[[], None]) -> None:
        """Hold this advisory lock, shared, on every connection from now on; `lost` is called when one of them ends.

        Idle connections, opened without the lock, are closed. Not behind a pooler: the lock would stay with the
        server connection, which the pooler lends to other clients.
        """
        if not self._pooled:
            self._connections.on_open = partial(_take_advisory_lock, key, lost)
            self._connections.drop_idle()

    def abandon(self) -> None:
        self._closed = True
        self._connections.abandon()

    async def read(self, work: Work[T]) -> T:
        return await self._with_retries(work, self._runner(alone=True), read_only=True)

    async def write(self, work: Work[T], *, alone: bool = False, small: bool = False, retry_locked: bool = True) -> T:
        way = self._runner(alone=alone, retry_locked=retry_locked)
        return await self._with_retries(work, way, read_only=False, retry_locked=retry_locked)

    def _runner(self, *, alone: bool, retry_locked: bool = True) -> Any:
        """Behind a pooler only a transaction is sure to run on one connection, with its settings."""
        if alone and not self._pooled:
            return self._run_alone
        begin = _BEGIN_POOLED if self._pooled else "BEGIN"
        return partial(self._run_in_transaction, begin if retry_locked else f"{begin}; {_LOCK_TIMEOUT}")

    async def _with_retries(self, work: Work[T], run: Any, *, read_only: bool, retry_locked: bool = True) -> T:
        """Run the work; retry while the database rolled back or could not be reached."""
        if self._closed:
            raise StoreUnavailable("the store is closed", code="store_closed")
        last: BaseException | None = None
        backoff: Backoff | None = None
        for _ in range(TRIES_MAX):
            try:
                return await run(work)  # type: ignore[no-any-return]
            except (*_SAFE_TO_RETRY, *_CONNECTION_LOST, OutcomeUnknown) as error:
                if isinstance(error, ValueError) or (isinstance(error, OutcomeUnknown) and not read_only):
                    raise  # also an argument that asyncpg cannot encode is an InterfaceError: a bug
                if isinstance(error, asyncpg.LockNotAvailableError) and not retry_locked:
                    raise Locked(
                        "lock timeout: another open transaction holds a lock; nothing was written, try again"
                    ) from error
                last = error
            except asyncpg.PostgresError as error:
                raise map_postgres_error(str(error.sqlstate), str(error), self.label) from error
            backoff = backoff or Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
            await self._clock.sleep(backoff.next())
        message = f"PostgreSQL failed {TRIES_MAX} times in a row, nothing was written: "
        raise StoreUnavailable(f"{message}{failure_kind(last)}", full=f"{message}{driver_message(last)}") from last

    def prepare_changed_database(self, needed: Work[bool], work: Work[Any]) -> None:
        """Run `work`, if `needed`, on the first connection to a changed database, before any other statement. If that
        fails, on a lock timeout for instance, the connection is used anyway, and the next one tries again."""

        async def prepare(connection: Any) -> bool:
            tx = PostgresTx(connection, self._clock)
            begin = f"{_BEGIN_POOLED if self._pooled else 'BEGIN'}; {_LOCK_TIMEOUT}"
            try:
                for step in (needed, work):  # a transaction each
                    await connection.execute(begin)
                    wanted = await step(tx)
                    await _commit(connection)
                    if step is needed and not wanted:
                        return True
            except (*DATABASE_ERRORS, HoldfastError) as error:
                log.debug("the changed database is not prepared yet: %s", error)
                await _roll_back(connection)
                return False
            run_callbacks(tx.callbacks)
            return True

        self.identity.prepare = prepare

    async def _acquire(self) -> Any:
        connection = self._connections.idle()
        if connection is None:
            with ObservedStep(self.on_query, CONNECT, self._clock):
                connection = await self._connections.acquire()
        connection.replication_unconfirmed = False  # left by earlier work that failed
        if self._detector is not None:
            self._detector.start()
        return connection

    def _put_back(self, connection: Any) -> None:
        if connection.unanswered >= ABANDONED_SECONDS:
            connection.terminate()
            self._connections.drop_idle()
        self._connections.release(connection)

    async def _run_in_transaction(self, begin: str, work: Work[T]) -> T:
        connection = await self._acquire()
        try:
            tx = PostgresTx(connection, self._clock, on_query=self.on_query)
            try:
                with ObservedStep(self.on_query, BEGIN, self._clock):
                    await connection.execute(begin)
                result = await work(tx)
                await tx.flush()
            except BaseException:
                await _roll_back(connection)
                raise
            with ObservedStep(self.on_query, COMMIT, self._clock):
                await _commit(connection)
        finally:
            self._put_back(connection)
        run_callbacks(tx.callbacks)
        return result

    async def _run_alone(self, work: Work[T]) -> T:
        """Autocommit: a connection lost during a statement leaves its outcome unknown."""
        connection = await self._acquire()
        try:
            tx = PostgresTx(connection, self._clock, alone=True, on_query=self.on_query)
            try:
                result = await work(tx)
                await tx.flush()
            except (asyncpg.PostgresError, *_SAFE_TO_RETRY, *_CONNECTION_LOST) as error:
                if tx.wrote or isinstance(error, _CONNECTION_LOST):  # a retry would repeat committed statements
                    raise _outcome_unknown(error) from error
                raise
            except asyncio.CancelledError:
                connection.terminate()  # a statement may still be running on it
                raise
            require_replication(connection)
        finally:
            self._put_back(connection)
        run_callbacks(tx.callbacks)
        return result


def _on_server_message(connection: Any, message: Any) -> None:
    if message.server_source_function == WAIT_FOR_STANDBY:
        connection.replication_unconfirmed = True


def require_replication(connection: Any) -> None:
    """Raise if the wait for the synchronous standby was canceled: the server then warns and reports success, but a
    failover may lose the commit."""
    if connection.replication_unconfirmed:
        connection.replication_unconfirmed = False
        raise unconfirmed_commit()


def unconfirmed_commit() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the wait for the synchronous standby was canceled: the commit is on this server, and a failover may lose "
        "it; repeat the request with the same key or token"
    )


async def _commit(connection: Any) -> None:
    try:
        require_commit(await connection.execute("COMMIT"))
        require_replication(connection)
    except _CONNECTION_LOST as error:
        raise _outcome_unknown(error) from error
    except asyncio.CancelledError:
        connection.terminate()
        raise


def require_commit(answer: Any) -> None:
    """PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and raises no error."""
    if answer == "ROLLBACK":
        raise swallowed_error()


def swallowed_error() -> StoreError:
    return StoreError(
        "a statement in this transaction had failed and its error was swallowed: nothing was written",
        code="rolled_back",
    )


async def _roll_back(connection: Any) -> None:
    """A connection that cannot roll back is closed, so that no later work runs inside an old transaction.

    The wait is short: the caller may have been cancelled because the server does not answer.
    """
    try:
        if not connection.is_closed():
            async with asyncio.timeout(ROLLBACK_SECONDS):
                await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):  # cancelled once more
            raise


def _outcome_unknown(error: BaseException) -> OutcomeUnknown:
    message = (
        "the connection was lost before PostgreSQL confirmed the commit ({}); "
        "it may have happened: repeat the request with the same key or token"
    )
    return OutcomeUnknown(message.format(failure_kind(error)), full=message.format(driver_message(error)))


# Planner settings. Before its first ANALYZE a table looks tiny, and the planner would sort every due job instead of
# reading the first few from the index; no query here gains from bitmap scans. A sequential scan of a small table would
# lock rows in physical order, and so risk deadlocks; index scans lock in id order. Every join is by a key; a plan with
# another one, made when there were few lanes, would later read all of them. Plans fit batches of any size, so generic
# plans save planning. Without sequential scans a full scan looks so expensive that JIT would compile it, at a thousand
# times its cost.
_PLANNER = (
    *("enable_bitmapscan = off", "enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off"),
    *("enable_material = off", "plan_cache_mode = force_generic_plan", "jit = off"),
)
# Also if the role has another setting: an unconfirmed synchronous commit is only visible as a warning.
_SETTINGS = (*_PLANNER, "client_min_messages = warning")

_LOCK_TIMEOUT = f"SET LOCAL lock_timeout = {round(LOCK_SECONDS * 1000)}"
_BEGIN_POOLED = "; ".join(
    [
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        *(f"SET LOCAL {setting}" for setting in (*_SETTINGS, *transaction_settings())),
    ]
)


async def _connect(url: str, *, pooled: bool, identity: IdentityTracker) -> Any:
    connection = await open_connection(
        url,
        timeout=CONNECT_SECONDS,
        statement_cache_size=0 if pooled else 1024,
        command_timeout=COMMAND_SECONDS,
    )
    connection.add_log_listener(_on_server_message)
    try:
        if not pooled:  # on the connection of a pooler, the settings would leak to its next client
            await connection.execute("; ".join(f"SET {setting}" for setting in (*_SETTINGS, *session_settings())))
        await use_codecs(connection)
        await identity.verify(await read_identity(connection, pooled=pooled), connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _take_advisory_lock(key: int, lost: Callable[[], None], connection: Any) -> None:
    await connection.execute(f"SET idle_session_timeout = 0; SELECT pg_advisory_lock_shared({key})")
    connection.add_termination_listener(lambda _: lost())


async def _behind_pooler(url: str, identity: IdentityTracker) -> bool:
    connection = await open_connection(url, statement_cache_size=0)
    try:
        pooled = await is_pooled(connection)
        identity.update(await read_identity(connection, pooled=pooled))
        return pooled
    finally:
        await connection.close()


async def is_pooled(connection: asyncpg.Connection[Any]) -> bool:
    """Behind a pooler, the backend that answers has another pid than the one reported at connect."""
    async with connection.transaction():
        return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())
