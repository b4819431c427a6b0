"""`holdfast migrate`: applies the schema migrations, or prints their SQL."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from holdfast.cli.app_option import named_app
from holdfast.cli.database import settings_of
from holdfast.cli.output import print_result
from holdfast.cli.parser import command


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "migrate",
        run,
        about="create or upgrade the database schema",
        more="It is safe to run it repeatedly, concurrently, and again after it was interrupted. With --app it also "
        "creates the tables of the extensions that the app includes.",
        examples=[
            "holdfast migrate --database postgresql://localhost/jobs",
            "HOLDFAST_DATABASE_URL=postgresql://localhost/jobs holdfast migrate --sql > schema.sql",
        ],
    )
    parser.add_argument("--sql", action="store_true", help="print the SQL for an empty database, without connecting")


def run(options: argparse.Namespace) -> int:
    from holdfast.store.migrate import as_sql, dialect_of, migrate

    url, app = settings_of(options).url, named_app(options)
    extensions = [] if app is None else [*app.extensions.values()]
    if options.sql:
        sql = as_sql(dialect := dialect_of(url), extensions)
        print_result(options, {"dialect": dialect, "sql": sql}, sql.removesuffix("\n"))
        return 0
    applied = asyncio.run(migrate(url, extensions))
    text = f"applied {', '.join(applied)}" if applied else "the schema is current"
    print_result(options, {"applied": applied}, text)
    return 0
