"""Markers for what the two databases write differently: times, lists, locks, the event log."""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast.store.queries import Query

POSTGRES, SQLITE = "postgres", "sqlite"

# The text of a marker; a function gets what follows the colon.
Text = str | Callable[[str], str]

MARKER = re.compile(r"\{([^{}]*)\}")
# The time of the statement, not of the transaction; usable as an index condition.
POSTGRES_NOW = "coalesce(:now::timestamptz, statement_timestamp())"


def shifted_now(sign: str, seconds: str, dialect: str) -> str:
    if dialect == POSTGRES:
        return f"({POSTGRES_NOW} {sign} ({seconds}) * interval '1 second')"
    return f"(:now {sign} CAST(({seconds}) * 1000000 AS INTEGER))"


def _columns(rows: str) -> tuple[str, list[tuple[str, str]]]:
    name, _, listed = rows.partition("(")
    pairs = [column.split() for column in listed.rstrip(")").split(",")]
    return name, [(column, kind) for column, kind in pairs]


def times_of(query: Query) -> tuple[tuple[str, int], ...]:
    tables = [
        _columns(" ".join(found[5:].split())) for found in MARKER.findall(query.text) if found.startswith("rows:")
    ]
    return tuple(
        (name, place) for name, columns in tables for place, (_, kind) in enumerate(columns) if kind == "timestamptz"
    )


def _postgres_rows(rows: str) -> str:
    name, columns = _columns(rows)
    arrays = ", ".join(f":{name}.{place}::{kind}[]" for place, (_, kind) in enumerate(columns))
    return f"unnest({arrays}) AS {name}({', '.join(column for column, _ in columns)})"


def postgres_row(rows: str) -> str:
    """A single row needs no arrays and is inlined by the planner: this halves the cost of a small statement."""
    name, columns = _columns(rows)
    values = ", ".join(f":{name}.{place}::{kind} AS {column}" for place, (column, kind) in enumerate(columns))
    return f"(SELECT {values}) AS {name}"


def _sqlite_rows(rows: str) -> str:
    name, columns = _columns(rows)
    picked = ", ".join(f"value->>{place} AS {column}" for place, (column, _) in enumerate(columns))
    return f"(SELECT {picked} FROM json_each(:{name})) AS {name}"


def sqlite_row(rows: str) -> str:
    """A single row is bound value by value: to write and to parse JSON would cost as much as the insert of the row."""
    name, columns = _columns(rows)
    values = ", ".join(f":{name}.{place} AS {column}" for place, (column, _) in enumerate(columns))
    return f"(SELECT {values}) AS {name}"


def _postgres_in(wanted: str) -> str:
    """An array keeps the planner on the primary key; a join depends on statistics that may not exist yet."""
    name, kind = wanted.split()
    return f"= ANY(:{name}::{kind}[])"


def _postgres_any(wanted: str) -> str:
    name, column, kind = wanted.split()
    return f"(:{name}::{kind}[] IS NULL OR {column} = ANY(:{name}::{kind}[]))"


def _sqlite_any(wanted: str) -> str:
    name, column, _ = wanted.split()
    return f"(:{name} IS NULL OR {column} IN (SELECT value FROM json_each(:{name})))"


# Set by the statement itself, so that it also works with autocommit. The subquery runs once.
_LOCK_TIMEOUT = (
    "(SELECT set_config('lock_timeout', coalesce(:lock_timeout::text, current_setting('lock_timeout')), TRUE))"
    " IS NOT NULL"
)
# Positions are transaction ids; higher if the job's last event has a higher one: see `{next version}`. A reader stays
# below the oldest open transaction, so it has not passed what that transaction writes, at its id or above.
POSTGRES_POS = "(SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)"
_POSTGRES_HORIZON = "(SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base FROM holdfast_event_log)"
_POSTGRES_CEILING = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base FROM holdfast_event_log)"


def _log_end(greatest: str) -> str:
    return (
        f"{greatest}(coalesce((SELECT pos FROM holdfast_events ORDER BY pos DESC LIMIT 1), 0), "
        "coalesce((SELECT max(pos) FROM holdfast_readers), 0), (SELECT pruned FROM holdfast_event_log))"
    )


# For PostgreSQL and for SQLite.
BY_DIALECT: dict[str, tuple[Text, Text]] = {
    "now": (POSTGRES_NOW, ":now"),
    "skip_locked": ("FOR UPDATE SKIP LOCKED", ""),
    "skip_locked of jobs": ("FOR UPDATE OF holdfast_jobs SKIP LOCKED", ""),
    "locked row": ("FOR UPDATE", ""),
    "locked": ("FOR UPDATE OF holdfast_jobs", ""),
    "lock_timeout": (_LOCK_TIMEOUT, "coalesce(:lock_timeout, '') IS NOT NULL"),
    "or ignore": ("", "OR IGNORE"),
    "rows": (_postgres_rows, _sqlite_rows),
    "in": (_postgres_in, lambda wanted: f"IN (SELECT value FROM json_each(:{wanted.split()[0]}))"),
    "in picked": ("= ANY(ARRAY(SELECT id FROM picked))", "IN (SELECT id FROM picked)"),
    "in ripe": ("= ANY(ARRAY(SELECT id FROM ripe))", "IN (SELECT id FROM ripe)"),
    "any": (_postgres_any, _sqlite_any),
    "items": ("json_array_elements_text({}::json)".format, "json_each({})".format),
    "pairs": ("json_each_text({}::json)".format, "json_each({})".format),
    "least": ("least", "min"),
    "greatest": ("greatest", "max"),
    "seconds since": (
        "greatest(0, extract(epoch FROM {{now}} - {}))::float8".format,
        "max(0, ({{now}} - {}) / 1000000.0)".format,
    ),
    "horizon": (_POSTGRES_HORIZON, str(2**63 - 1)),
    "beyond": (
        f"{_POSTGRES_HORIZON} + 1",
        "(SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_events'), 0) + 2)",
    ),
    "ceiling": (_POSTGRES_CEILING, str(2**63 - 1)),
    "log end": (_log_end("greatest"), _log_end("max")),
    "pos": (POSTGRES_POS, "0"),
    "pos column": ("pos, ", ""),
    "pos of said": (
        f"greatest({POSTGRES_POS}, (SELECT max(pos) FROM holdfast_events WHERE job_id = said.id)), ",
        "",
    ),
    "parts of jobs": (
        "(SELECT json_agg(json_build_object('name', name, 'status', status, 'percent', percent, 'total', total, "
        "'done', done) ORDER BY place, name)::text "
        "FROM holdfast_parts WHERE holdfast_parts.job_id = holdfast_jobs.id)",
        "(SELECT nullif(json_group_array(json_object('name', name, 'status', status, 'percent', percent, 'total', "
        "total, 'done', done)), '[]') "
        "FROM (SELECT * FROM holdfast_parts WHERE holdfast_parts.job_id = holdfast_jobs.id ORDER BY place, name))",
    ),
    "next version": (
        f"version = holdfast_jobs.version + 1, moved_by = :actor, pos = greatest(holdfast_jobs.pos, {POSTGRES_POS})",
        "version = holdfast_jobs.version + 1, moved_by = :actor",
    ),
}
