"""The store on PostgreSQL: a pool of connections, the database's own clock, whole batches in one statement."""

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
from holdfast.store.base import BEGIN, COMMIT, CONNECT, Blocked, Row, T, Tx, Watch, Watched, Work, check_params, tell
from holdfast.store.connect import open_connection, session_settings, transaction_settings
from holdfast.store.dead_connections import HalfOpenWatch
from holdfast.store.error_mapping import UNNAMED, Named, kind_of, kind_of_state, refusal, said_by, unreachable
from holdfast.store.hook_guard import call
from holdfast.store.identity import Identities, Identity, of_connection, of_row, other_database, question
from holdfast.store.pool import Connections
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES, Statement, render

log = logging.getLogger(__name__)

TRIES_MAX = 6
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.03, 1.0
CONNECT_SECONDS = 10.0
ROLLBACK_SECONDS = 1.0
COMMAND_SECONDS = 30.0  # whatever takes longer is canceled, and its outcome is not known
LOCK_SECONDS = 1.0  # a statement that says {lock_timeout} waits no longer for another transaction
GIVEN_UP_SECONDS = 2.0  # a statement given up after so long makes the idle connections suspect

# The function of the server that warns when the wait for a standby was canceled. The text is in the server's language.
WAIT_FOR_STANDBY = "SyncRepWaitForLSN"

# The server says it rolled back, or was never asked: running the work again is safe.
_NOT_DONE = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # "cannot switch to state": the server has just said goodbye on this connection
)
# The connection went while a statement was under way: that statement may or may not have happened.
_CUT_OFF = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    OSError,
    TimeoutError,
)


# Whatever can come between us and the server.
FAILED = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


_TRANSACTION = ("BEGIN", "COMMIT", "ROLLBACK")
_SAVEPOINT = ("SAVEPOINT hooks", "RELEASE SAVEPOINT hooks", "ROLLBACK TO SAVEPOINT hooks; RELEASE SAVEPOINT hooks")


class PostgresTx:
    lock_seconds: float | None = LOCK_SECONDS
    lock_errors: tuple[type[Exception], ...] = (asyncpg.LockNotAvailableError,)

    def __init__(self, connection: Any, clock: Clock, *, alone: bool = False, watch: Watch | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._watch = watch
        self.alone = alone
        self.callbacks: list[Callable[[], None]] = []
        self.wrote = False
        self._nested = 0
        self._asking = False  # a statement is under way
        self._kept_back: list[tuple[str, list[list[Any]]]] = []  # a statement, and its arguments for each time

    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]:
        if self._kept_back:
            await self.flush()
        if query.tables and all(len(params.get(table, ())) == 1 for table in query.tables):
            query = query.for_one
        statement = render(query, POSTGRES, limit, filters)
        values = bind(query, statement, params, self._clock)
        rows: list[Row]
        self._asking = True
        try:
            if self._watch is None:
                rows = await self._connection.fetch(statement.text, *values)
            else:
                rows = await self._watched(self._watch, query, statement, values)
        finally:
            self._asking = False
        self.wrote = self.wrote or not query.text.startswith("SELECT")
        return rows

    async def _watched(self, watch: Watch, query: Query, statement: Statement, values: list[Any]) -> list[Row]:
        began = self._clock.monotonic()
        try:
            rows: list[Row] = await self._connection.fetch(statement.text, *values)
        except BaseException as error:
            watch(query, self._clock.monotonic() - began, error)
            raise
        watch(query, self._clock.monotonic() - began, None)
        return rows

    async def one(self, query: Query, **params: Any) -> Row | None:
        rows = await self.all(query, **params)
        return rows[0] if rows else None

    async def run(self, query: Query, **params: Any) -> None:
        statement = render(query, POSTGRES)
        values = bind(query, statement, params, self._clock)
        if not self._kept_back or self._kept_back[-1][0] != statement.text:
            self._kept_back.append((statement.text, []))
        self._kept_back[-1][1].append(values)

    async def flush(self) -> None:
        kept_back, self._kept_back = self._kept_back, []
        for text, values in kept_back:
            self._asking = True
            try:
                await self._connection.executemany(text, values)
            finally:
                self._asking = False
            self.wrote = True

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        outermost = self.alone and not self._nested
        begin, release, undo = _TRANSACTION if outermost else _SAVEPOINT
        await self.flush()
        told = len(self.callbacks)
        await self._execute(begin)
        self._nested += 1
        try:
            yield
            await self.flush()
        except BaseException:
            self._kept_back.clear()
            del self.callbacks[told:]
            await self._execute(undo)
            raise
        finally:
            self._nested -= 1
        if outermost:
            await _commit(self._connection)
        else:
            await self._release(release, undo)

    async def _release(self, release: str, undo: str) -> None:
        """PostgreSQL refuses it where a statement had failed and its error was caught."""
        try:
            await self._execute(release)
        except asyncpg.InFailedSQLTransactionError as error:
            await self._execute(undo)
            raise swallowed() from error

    async def _execute(self, sql: str) -> None:
        self._asking = True
        try:
            await self._connection.execute(sql)
        finally:
            self._asking = False

    async def call(self, hook: Coroutine[Any, Any, T], seconds: float, blocked: Blocked) -> T:
        return await call(hook, seconds, self._clock, lambda: self._asking, blocked)

    async def wait_for_locks(self) -> None:
        if self.lock_seconds is not None:  # no limit, in a transaction that is not ours
            await self._execute("SET LOCAL lock_timeout TO DEFAULT")

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        self.callbacks.append(callback)


def bind(query: Query, statement: Statement, params: dict[str, Any], clock: Clock) -> list[Any]:
    """Arguments in order; a list of tuples becomes one array per column."""
    try:
        values: list[Any] = []
        for name, place in statement.places:
            if place is None:
                values.append(clock.database_now() if name == "now" else params[name])
            elif query.single:
                values.append(params[name][0][place])
            else:
                column = [row[place] for row in params[name]]
                # unnest fills the shorter arrays with NULL, so a column of nothing need not be sent.
                values.append([] if place and column.count(None) == len(column) else column)
        return values
    except KeyError:
        check_params(query, statement, params)
        raise


class PostgresStore:
    dialect = POSTGRES
    transaction_class = PostgresTx

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        ids: Ids,
        *,
        pooled: bool = False,
        half_open: HalfOpenWatch | None = None,
        identities: Identities | None = None,
    ) -> None:
        self.identities = identities or Identities()
        self._own: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # callers' connections that lead here
        self.watch: Watch | None = None
        self._connections = connections
        self._half_open = half_open
        self._pooled = pooled
        self._closed = False
        self.named = UNNAMED
        self._clock = clock
        self._ids = ids

    @classmethod
    async def open(cls, url: str, clock: Clock, ids: Ids, *, connections: int = 10) -> PostgresStore:
        identities = Identities()
        try:
            pooled = await _behind_pooler(url, identities)
        except FAILED as error:
            raise unreachable(url, error) from error
        connect = partial(_connect, url, pooled=pooled, identities=identities)
        pool = Connections(connect, connections, clock)
        half_open = None if pooled else HalfOpenWatch(url, pool)
        return cls(pool, clock, ids, pooled=pooled, half_open=half_open, identities=identities)

    async def identify(self) -> Identity | None:
        """Which database this is, asked now."""

        async def work(tx: Tx) -> None:
            self.identities.see(of_row(await tx.one(question(self.identities.now))))

        await self.read(work)
        return self.identities.now

    async def require_own(self, tx: Tx, connection: Any) -> None:
        """A caller's connection must lead to this database, not to another that has the same tables."""
        own = self.identities.now
        connection = getattr(connection, "_con", connection)  # not the wrapper that a pool makes for each use
        if own is None or self._remembered(connection) == own.database:
            return
        try:
            found = of_row(await tx.one(question(own)))
        except Exception as error:
            if "42P01" not in (
                getattr(error, "sqlstate", None),
                getattr(error, "pgcode", None),
            ):  # psycopg2 calls it so
                raise
            found = None
        if found is None or found.database != own.database:
            raise other_database("a database that was never migrated" if found is None else found.name, own.name)
        with suppress(TypeError):  # of some drivers' connections nothing can be remembered
            self._own[connection] = own.database

    def _remembered(self, connection: Any) -> Any:
        with suppress(TypeError):
            return self._own.get(connection)
        return None

    async def close(self) -> None:
        self._closed = True
        await self._connections.close()
        if self._half_open is not None:
            await self._half_open.close()

    def hold(self, key: int, lost: Callable[[], None]) -> None:
        """Every connection used from now on holds this lock, shared; `lost` is called whenever one of them ends.

        Idle connections, which were opened without the lock, are closed. Not behind a pooler: the lock would belong to
        the client that gets the connection next.
        """
        if not self._pooled:
            self._connections.on_open = partial(_hold, key, lost)
            self._connections.drop_idle()

    def abandon(self) -> None:
        self._closed = True
        self._connections.abandon()

    async def read(self, work: Work[T]) -> T:
        return await self._persist(work, self._way(alone=True), harmless=True)

    async def write(self, work: Work[T], *, alone: bool = False, retry_locked: bool = True) -> T:
        way = self._way(alone=alone, retry_locked=retry_locked)
        return await self._persist(work, way, harmless=False, retry_locked=retry_locked)

    def _way(self, *, alone: bool, retry_locked: bool = True) -> Any:
        """Behind a pooler only what stands in one transaction is sure to run on one connection, as it was set up."""
        if alone and not self._pooled:
            return self._run_alone
        begin = _BEGIN_POOLED if self._pooled else "BEGIN"
        return partial(self._run_in_transaction, begin if retry_locked else f"{begin}; {_LOCK_TIMEOUT}")

    async def _persist(self, work: Work[T], run: Any, *, harmless: bool, retry_locked: bool = True) -> T:
        """Run, and run again while the database says it rolled back or could not be reached."""
        if self._closed:
            raise StoreUnavailable("the store is closed", code="store_closed")
        last: BaseException | None = None
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        for _ in range(TRIES_MAX):
            try:
                return await run(work)  # type: ignore[no-any-return]
            except (*_NOT_DONE, *_CUT_OFF, OutcomeUnknown) as error:
                if isinstance(error, ValueError) or (isinstance(error, OutcomeUnknown) and not harmless):
                    raise  # asyncpg calls an argument it cannot encode an InterfaceError too; that is our own mistake
                if isinstance(error, asyncpg.LockNotAvailableError) and not retry_locked:
                    raise Locked(
                        "a transaction that has not ended yet is in the way, nothing was written: try again"
                    ) from error
                last = error
            except asyncpg.PostgresError as error:
                raise in_our_words(str(error.sqlstate), str(error), self.named) from error
            await self._clock.sleep(backoff.next())
        told = f"PostgreSQL did not take it in {TRIES_MAX} tries, nothing was written: "
        raise StoreUnavailable(f"{told}{kind_of(last)}", full=f"{told}{said_by(last)}") from last

    def prepare_changed_database(self, needed: Work[bool], work: Work[Any]) -> None:
        """Run `work`, if it is needed, when the database turns out to be another one than before, ahead of everything
        else. If it fails, because of a lock for instance, the connection is used all the same, and the next one tries
        again."""

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
            except (*FAILED, HoldfastError) as error:
                log.debug("the changed database is not prepared yet: %s", error)
                await _roll_back(connection)
                return False
            tell(tx.callbacks)
            return True

        self.identities.prepare = prepare

    async def _take(self) -> Any:
        with Watched(self.watch, CONNECT, self._clock):
            connection = await self._connections.take()
        connection.replication_unconfirmed = False  # a warning that belongs to earlier work, which has failed
        if self._half_open is not None:
            self._half_open.start()
        return connection

    def _give(self, connection: Any) -> None:
        if connection.unanswered >= GIVEN_UP_SECONDS:
            connection.terminate()
            self._connections.drop_idle()
        self._connections.give(connection)

    async def _run_in_transaction(self, begin: str, work: Work[T]) -> T:
        connection = await self._take()
        try:
            tx = PostgresTx(connection, self._clock, watch=self.watch)
            try:
                with Watched(self.watch, BEGIN, self._clock):
                    await connection.execute(begin)
                result = await work(tx)
                await tx.flush()
            except BaseException:
                await _roll_back(connection)
                raise
            with Watched(self.watch, COMMIT, self._clock):
                await _commit(connection)
        finally:
            self._give(connection)
        tell(tx.callbacks)
        return result

    async def _run_alone(self, work: Work[T]) -> T:
        """Each statement commits by itself, so a connection lost in the middle leaves its outcome unknown."""
        connection = await self._take()
        try:
            tx = PostgresTx(connection, self._clock, alone=True, watch=self.watch)
            try:
                result = await work(tx)
                await tx.flush()
            except (asyncpg.PostgresError, *_NOT_DONE, *_CUT_OFF) as error:
                if tx.wrote or isinstance(error, _CUT_OFF):  # running it again would forget what has happened already
                    raise _unknown(error) from error
                raise
            except asyncio.CancelledError:
                connection.terminate()  # a statement may still be under way on it
                raise
            require_replication(connection)
        finally:
            self._give(connection)
        tell(tx.callbacks)
        return result


def _hear_warning(connection: Any, message: Any) -> None:
    if message.server_source_function == WAIT_FOR_STANDBY:
        connection.replication_unconfirmed = True


def require_replication(connection: Any) -> None:
    """The wait for a standby can be canceled. The server then warns and reports success, but a failover may still lose
    the commit."""
    if connection.replication_unconfirmed:
        connection.replication_unconfirmed = False
        raise unconfirmed()


def unconfirmed() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the wait for the synchronous standby was canceled: the commit is on this server, and a failover may lose "
        "it; repeat the request with the same key or token"
    )


async def _commit(connection: Any) -> None:
    try:
        require_commit(await connection.execute("COMMIT"))
        require_replication(connection)
    except _CUT_OFF as error:
        raise _unknown(error) from error
    except asyncio.CancelledError:
        connection.terminate()
        raise


def require_commit(answer: Any) -> None:
    """PostgreSQL answers the COMMIT of a transaction that had failed with ROLLBACK, and calls that no error."""
    if answer == "ROLLBACK":
        raise swallowed()


def swallowed() -> StoreError:
    return StoreError(
        "a statement in this transaction had failed and its error was swallowed: nothing was written",
        code="rolled_back",
    )


async def _roll_back(connection: Any) -> None:
    """A connection that cannot roll back goes, so that no later work finds itself inside an old transaction.

    Nor is a server waited for that does not answer: whoever cancelled this has waited long enough.
    """
    try:
        if not connection.is_closed():
            async with asyncio.timeout(ROLLBACK_SECONDS):
                await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):  # cancelled once more
            raise


def _unknown(error: BaseException) -> OutcomeUnknown:
    told = (
        "the connection was lost before PostgreSQL confirmed the commit ({}); "
        "it may have happened: repeat the request with the same key or token"
    )
    return OutcomeUnknown(told.format(kind_of(error)), full=told.format(said_by(error)))


# By the state that PostgreSQL reports, or by its class: a value out of range, a limit of an index, a constraint.
_CODES = {"42P01": "missing_table", "42703": "missing_table", "22": "value", "54": "value", "23": "constraint"}


def in_our_words(state: str, message: str, named: Named = UNNAMED) -> HoldfastError:
    code = _CODES.get(state) or _CODES.get(state[:2], state)
    return refusal(code, message, named) or StoreUnavailable(
        f"PostgreSQL refused: {kind_of_state(state)}", code="store_refused", full=f"PostgreSQL refused: {message}"
    )


# Before its first ANALYZE a table looks tiny, and the planner would rather collect and sort every ready job than walk
# the index to the first few. Nothing of ours gains from bitmaps. A small table would be read whole, and its rows locked
# in the order in which they lie there: by an index they are locked in the order of their ids, as everywhere. And a plan
# that fits a batch of one fits a batch of a thousand: it need not be made anew each time. A table that must be read
# whole then looks so expensive that PostgreSQL would compile the plan, for a thousand times as long as it runs.
_PLANNER = ("enable_bitmapscan = off", "enable_seqscan = off", "plan_cache_mode = force_generic_plan", "jit = off")
# Whatever a role is set to: without warnings a commit that the standby has not confirmed would look like any other.
_SETTINGS = (*_PLANNER, "client_min_messages = warning")

_LOCK_TIMEOUT = f"SET LOCAL lock_timeout = {round(LOCK_SECONDS * 1000)}"
_BEGIN_POOLED = "; ".join(["BEGIN", *(f"SET LOCAL {setting}" for setting in (*_SETTINGS, *transaction_settings()))])


async def _prepare_own(connection: Any) -> None:
    await connection.execute("; ".join(f"SET {setting}" for setting in (*_SETTINGS, *session_settings())))
    await _prepare_lent(connection)


async def _prepare_lent(connection: Any) -> None:
    """Nothing may be set on a pooler's connection: it would stay for whoever gets it next."""
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")


async def _connect(url: str, *, pooled: bool, identities: Identities) -> Any:
    connection = await open_connection(
        url,
        timeout=CONNECT_SECONDS,
        statement_cache_size=0 if pooled else 1024,
        command_timeout=COMMAND_SECONDS,
    )
    connection.add_log_listener(_hear_warning)
    try:
        await (_prepare_lent if pooled else _prepare_own)(connection)
        await identities.admit(await of_connection(connection, pooled=pooled), connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _hold(key: int, lost: Callable[[], None], connection: Any) -> None:
    await connection.execute(f"SET idle_session_timeout = 0; SELECT pg_advisory_lock_shared({key})")
    connection.add_termination_listener(lambda _: lost())


async def _behind_pooler(url: str, identities: Identities) -> bool:
    connection = await open_connection(url, statement_cache_size=0)
    try:
        pooled = await is_pooled(connection)
        identities.see(await of_connection(connection, pooled=pooled))
        return pooled
    finally:
        await connection.close()


async def is_pooled(connection: asyncpg.Connection[Any]) -> bool:
    """Does the process that greeted us also answer us? In a transaction, which a pooler keeps on one connection."""
    async with connection.transaction():
        return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())
