"""Runs the migrations on a caller's connection, as in an Alembic revision or a Django migration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.errors import Invalid
from holdfast.model.names import kind_of
from holdfast.store.advisory_locks import MIGRATION
from holdfast.store.migrate import _TABLE, Migratable, migrations, record_applied, statements

Run = Callable[[str], Any]


def migrate_connection(connection: Any, extensions: Iterable[Migratable] = ()) -> list[str]:
    """Apply the missing migrations in the open transaction of the connection, and return their names.

    The connection is SQLAlchemy's (`op.get_bind()`), Django's (`schema_editor.connection`), or that of a sync driver.
    `extensions` are those of the app: `app.extensions.values()`.
    """
    dialect, run = _dialect_of(connection), _runner(connection)
    if dialect == "postgres":
        run(f"SELECT pg_advisory_xact_lock({MIGRATION})")
    run(_TABLE)
    done = {tuple(row) for row in run("SELECT extension, number FROM holdfast_migrations").fetchall()}
    left = [migration for migration in migrations(dialect, extensions) if migration.key not in done]
    for migration in left:
        for statement in _statements(dialect, migration.sql):
            run(statement)
        run(record_applied(migration))
    return [migration.shown for migration in left]


def _dialect_of(connection: Any) -> str:
    library = type(connection).__module__.partition(".")[0]
    name = {"psycopg": "postgresql", "psycopg2": "postgresql", "sqlite3": "sqlite"}.get(library)
    name = name or getattr(connection, "vendor", None) or getattr(getattr(connection, "dialect", None), "name", None)
    if name not in ("postgresql", "sqlite"):
        raise Invalid(
            f"cannot migrate through {kind_of(connection)}; pass a connection of SQLAlchemy, Django, psycopg, psycopg2 "
            "or sqlite3",
            code="invalid_connection",
        )
    return "postgres" if name == "postgresql" else "sqlite"


def _runner(connection: Any) -> Run:
    """Execute without parameters, so that `%` is literal."""
    if hasattr(connection, "exec_driver_sql"):
        return lambda sql: connection.exec_driver_sql(sql, execution_options={"no_parameters": True})

    def run(sql: str) -> Any:
        cursor = connection.cursor()
        cursor.execute(sql)
        return cursor

    return run


def _statements(dialect: str, script: str) -> Iterator[str]:
    """Split the script: a prepared statement, as asyncpg uses, cannot contain several."""
    if dialect == "sqlite":
        yield from statements(script)
        return
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        code, _, _ = line.partition("--")
        ends = (code if code.count("'") % 2 == 0 else line).rstrip().endswith(";")  # a comment may end with one, too
        if ends and pending.count("$$") % 2 == 0:
            yield pending
            pending = ""
    if pending.strip():
        yield pending
