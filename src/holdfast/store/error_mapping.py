"""Maps errors of PostgreSQL and SQLite to errors of Holdfast, with messages that are safe to show to clients."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from holdfast.errors import Conflict, HoldfastError, IllegalMove, RowRefused, SchemaStale, StoreError, StoreUnavailable


class DatabaseLabel(NamedTuple):
    """How messages name a database, without its password, and the command that migrates it."""

    database: str = "the database"
    migrate: str = "holdfast migrate"


DEFAULT_LABEL = DatabaseLabel()

# The messages for clients, instead of PostgreSQL's own text: by SQLSTATE, else by its class.
_KINDS = {
    "08": "the connection failed",
    "0A": "it does not support the statement",
    "22": "a value is out of range or malformed",
    "23": "a constraint is violated",
    "25006": "it is read-only",
    "25": "invalid transaction state",
    "28": "authentication failed",
    "3D": "the database does not exist",
    "40": "the transaction conflicts with another one",
    "42501": "the user lacks a permission",
    "42": "it does not accept the statement",
    "53100": "its disk is full",
    "53200": "it is out of memory",
    "53300": "too many connections",
    "53": "it is out of resources",
    "54": "a limit of the database is exceeded",
    "55P03": "lock timeout: another transaction holds a lock",
    "55": "the state of the database does not allow it",
    "57014": "the statement was canceled",
    "57P03": "it is starting or stopping",
    "57": "it is stopping, or an operator has intervened",
    "58": "its operating system failed",
    "P0": "a function in the database raised an error",
    "XX": "an internal error of the database",
}


def _sqlstate_kind(state: str) -> str:
    return _KINDS.get(state) or _KINDS.get(state[:2], f"an error of class {state[:2]}")


def failure_kind(error: BaseException | None) -> str:
    """The kind of failure, without the text of the database or the driver."""
    match error:
        case HoldfastError():
            return error.message
        case TimeoutError():
            return "no answer in time"
        case OSError():
            return "it cannot be reached"
        case _ if isinstance(state := getattr(error, "sqlstate", None), str):
            return _sqlstate_kind(state)
    return "the connection was closed"


def driver_message(error: BaseException | None) -> str:
    """The text of the database or the driver, for the log."""
    return str(error) or type(error).__name__


def _error_for(code: str, message: str, label: DatabaseLabel = DEFAULT_LABEL) -> HoldfastError | None:
    """The error for a code of the triggers (HF001 to HF003) or a constraint; None if it is not about the data."""
    message = message.partition("\nDETAIL:")[0]  # which may quote the row
    if code == "HF001":
        return IllegalMove(message)
    if code == "HF002":
        return Conflict(message, code="append_only")
    if code == "missing_table":
        return SchemaStale(
            "the database has no Holdfast schema, or an old one; run `holdfast migrate`",
            full=f"{label.database} has no Holdfast schema, or an old one ({message}); run `{label.migrate}`",
        )
    if code == "HF003":
        return IllegalMove(message, code="actor_not_allowed")
    if code == "constraint":
        fault = "the database rejected the row: "
        return RowRefused(f"{fault}a constraint is violated", full=f"{fault}{message}")
    if code == "value":
        fault = "the database cannot store a value of the row: "
        short = f"{fault}it is out of range, too large or malformed"
        return RowRefused(short, code="value_refused", full=f"{fault}{message}")
    return None


# By SQLSTATE, or by its class: a value out of range, a program limit, a constraint.
_CODES = {"42P01": "missing_table", "42703": "missing_table", "22": "value", "54": "value", "23": "constraint"}


def map_postgres_error(state: str, message: str, label: DatabaseLabel = DEFAULT_LABEL) -> HoldfastError:
    code = _CODES.get(state) or _CODES.get(state[:2], state)
    return _error_for(code, message, label) or StoreUnavailable(
        f"PostgreSQL failed: {_sqlstate_kind(state)}", code="store_refused", full=f"PostgreSQL failed: {message}"
    )


def map_sqlite_error(error: BaseException) -> HoldfastError:
    text = str(error)
    if text.startswith("HF00"):
        return _error_for(text[:5], text[6:]) or StoreError(text)
    code = ""
    if "no such table" in text or "no such column" in text:
        code = "missing_table"
    elif isinstance(error, sqlite3.IntegrityError):
        code = "constraint"
    elif isinstance(error, sqlite3.DataError):
        code = "value"
    return _error_for(code, text) or StoreUnavailable(f"SQLite failed: {text}", code="store_refused")


def unreachable(url: str, error: BaseException) -> StoreUnavailable:
    """The error for a failed connection: the server, the reason and what to check, without the password."""
    why = str(error) or "it did not answer in time"
    look = "is the server up, and is the database URL right?"
    return StoreUnavailable(
        f"cannot connect to PostgreSQL: {failure_kind(error)}; {look}",
        full=f"cannot connect to PostgreSQL{_host_and_port(url)}: {why}; {look}",
    )


def _host_and_port(url: str) -> str:
    """Host and port as the driver parses them; empty if they may contain a part of the password."""
    parts = urlsplit(url)
    _, at, hosts = parts.netloc.rpartition("@")
    if not at and "@" in url:
        return ""
    query = parse_qs(parts.query)
    host, port = (query.get(name, [""])[0] for name in ("host", "port"))
    found = hosts or f"{host}{':' if port else ''}{port}"
    return f" at {found}" if found else ""
