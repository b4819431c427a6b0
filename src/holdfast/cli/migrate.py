"""`holdfast migrate`: bring the database to the newest schema, or print what that takes."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from holdfast.settings import load
from holdfast.store.migrate import as_sql, dialect_of, migrate


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "migrate",
        help="bring the database to the newest schema",
        description="Bring the database of HOLDFAST_DATABASE_URL to the newest schema. Running it twice, or two of it "
        "at once, or again after it was killed half-way, does no harm.",
        epilog="example: HOLDFAST_DATABASE_URL=postgresql://localhost/jobs holdfast migrate --sql > schema.sql",
    )
    parser.add_argument("--sql", action="store_true", help="print the SQL for an empty database and change nothing")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    url = load().url
    if options.sql:
        print(as_sql(dialect_of(url)), end="")
        return 0
    applied = asyncio.run(migrate(url))
    print(f"applied {', '.join(applied)}" if applied else "the schema is current")
    return 0
