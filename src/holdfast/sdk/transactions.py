"""Finds the driver's connection in what the caller passes: itself, or inside a SQLAlchemy or Django wrapper."""

from __future__ import annotations

import inspect
from typing import Any

from holdfast.errors import Invalid
from holdfast.model.names import kind_of

_ASYNC = ("asyncpg", "aiosqlite")  # they wrap their coroutines: `iscoroutinefunction` does not recognize them


async def driver_connection(given: Any) -> Any:
    """Awaits nothing for a sync session or connection, so that sync code can run it without an event loop."""
    if _is_djangos(given):
        if given.connection is None:
            given.ensure_connection()
        return given.connection
    if not _is_sqlalchemys(given):
        return given
    connection = given if hasattr(given, "exec_driver_sql") else await _awaited(given.connection())
    is_async = hasattr(connection, "get_raw_connection")
    driver = (await connection.get_raw_connection() if is_async else connection.connection).driver_connection
    if not (connection.in_transaction() and _has_begun(driver)):
        await _awaited(
            connection.exec_driver_sql("SELECT 1")
        )  # the wrapper must begin the transaction, before our first statement
    return driver


def _has_begun(driver: Any) -> bool:
    """With asyncpg, SQLAlchemy begins a transaction only at the first statement."""
    return bool(driver.is_in_transaction()) if _library(type(driver)) == "asyncpg" else True


def require_sync(given: Any) -> None:
    if _library(type(given)) in _ASYNC or inspect.iscoroutinefunction(getattr(given, "execute", None)):
        raise Invalid(
            f"{kind_of(given)} belongs to its event loop; use `await ....enqueue(...)` there",
            code="invalid_connection",
        )


def _is_sqlalchemys(given: Any) -> bool:
    """Connections and sessions, subclasses included; not models and engines, which have no transaction."""
    ours = any(_library(base) == "sqlalchemy" for base in type(given).__mro__)
    return ours and (hasattr(given, "exec_driver_sql") or callable(getattr(given, "connection", None)))


def _is_djangos(given: Any) -> bool:
    """`django.db.connection`, or one of `django.db.connections`."""
    return any(_library(base) == "django" for base in type(given).__mro__) and hasattr(given, "ensure_connection")


def _library(kind: type[Any]) -> str:
    return kind.__module__.partition(".")[0]


async def _awaited(found: Any) -> Any:
    return await found if inspect.iscoroutine(found) else found
