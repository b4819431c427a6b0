"""`holdfast migrate`: bring the database to the newest schema, or print what that takes."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from holdfast.cli.database import settings_of
from holdfast.cli.output import print_json
from holdfast.cli.parser import command


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "migrate",
        run,
        about="bring the database to the newest schema",
        more="Running it twice, or two of it at once, or again after it was killed half-way, does no harm.",
        examples=[
            "holdfast migrate --database postgresql://localhost/jobs",
            "HOLDFAST_DATABASE_URL=postgresql://localhost/jobs holdfast migrate --sql > schema.sql",
        ],
    )
    parser.add_argument("--sql", action="store_true", help="print the SQL for an empty database and change nothing")


def run(options: argparse.Namespace) -> int:
    from holdfast.store.migrate import as_sql, dialect_of, migrate

    url = settings_of(options).url
    if options.sql:
        dialect = dialect_of(url)
        if options.json:
            print_json({"dialect": dialect, "sql": as_sql(dialect)})
        else:
            print(as_sql(dialect), end="")
        return 0
    applied = asyncio.run(migrate(url))
    if options.json:
        print_json({"applied": applied})
    else:
        print(f"applied {', '.join(applied)}" if applied else "the schema is current")
    return 0
