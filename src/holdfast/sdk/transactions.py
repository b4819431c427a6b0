"""The driver's own connection behind what a caller hands in: itself, or what SQLAlchemy or Django wraps around it."""

from __future__ import annotations

import inspect
from typing import Any

from holdfast.errors import Invalid
from holdfast.model.names import kind_of

_ASYNC = ("asyncpg", "aiosqlite")  # of these it cannot be seen: they wrap their coroutines


async def driver_connection(given: Any) -> Any:
    """Of a sync session or connection nothing is awaited, so that sync code can run this to its end by itself."""
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
        await _awaited(connection.exec_driver_sql("SELECT 1"))  # it begins with its own first statement, not with ours
    return driver


def _has_begun(driver: Any) -> bool:
    """SQLAlchemy begins a transaction of asyncpg's no sooner than it must; the others know by themselves."""
    return bool(driver.is_in_transaction()) if _library(type(driver)) == "asyncpg" else True


def require_sync(given: Any) -> None:
    if _library(type(given)) in _ASYNC or inspect.iscoroutinefunction(getattr(given, "execute", None)):
        raise Invalid(
            f"{kind_of(given)} belongs to its event loop; use `await ....enqueue(...)` there",
            code="invalid_connection",
        )


def _is_sqlalchemys(given: Any) -> bool:
    """Its own classes and those that apps derive from them; not its models and engines, which have no transaction."""
    ours = any(_library(base) == "sqlalchemy" for base in type(given).__mro__)
    return ours and (hasattr(given, "exec_driver_sql") or callable(getattr(given, "connection", None)))


def _is_djangos(given: Any) -> bool:
    """`django.db.connection`, or one of `django.db.connections`."""
    return any(_library(base) == "django" for base in type(given).__mro__) and hasattr(given, "ensure_connection")


def _library(kind: type[Any]) -> str:
    return kind.__module__.partition(".")[0]


async def _awaited(found: Any) -> Any:
    return await found if inspect.iscoroutine(found) else found
