"""Opens the engine for a command, and the helpers that several commands share."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.cli.app_option import app_parts, named_app
from holdfast.cli.parser import Run
from holdfast.errors import HoldfastError, NotFound
from holdfast.lifecycle import Machine
from holdfast.model import Job
from holdfast.redaction import printable, without_password
from holdfast.settings import Settings, given_otherwise, load, origins

if TYPE_CHECKING:
    from holdfast.engine import Engine

T = TypeVar("T")
BY = "command line"  # the actor in the audit log


def settings_of(options: argparse.Namespace) -> Settings:
    """Precedence: the command line, the app's own settings, the environment, the file."""
    if (app := named_app(options)) is not None:
        return app.settings
    return load(overrides={"database_url": options.database})


def origins_of(options: argparse.Namespace) -> dict[str, str]:
    """The origin of each setting."""
    where = origins(overrides={"database_url": options.database})
    if named_app(options) is not None:
        where |= dict.fromkeys(given_otherwise(settings_of(options), options.database), "app")
    return where


RIGHT_DIRECTORY = (
    "is this the right directory? Name the database with HOLDFAST_DATABASE_URL or --database, or the app that uses it "
    "with --app"
)


def new_database(settings: Settings) -> str | None:
    """A warning that the command is about to create a SQLite file: usually it runs in the wrong directory."""
    from holdfast.store.migrate import dialect_of, sqlite_path

    try:
        if dialect_of(settings.url) != "sqlite" or (path := sqlite_path(settings.url)).exists():
            return None
        return f"no database at {path.resolve()}; creating a new, empty one"
    except (OSError, HoldfastError):  # opening the database reports it
        return None


def place_of(url: str) -> str:
    """Where the database is, without its password."""
    from holdfast.store.migrate import dialect_of, sqlite_path

    return f"SQLite in {sqlite_path(url).resolve()}" if dialect_of(url) == "sqlite" else without_password(url)


def on_engine(work: Callable[[Engine, argparse.Namespace], Awaitable[int | None]]) -> Run:
    """Decorates a command that needs the engine. It returns its exit code, or None for success."""
    return lambda options: with_engine(options, lambda engine: work(engine, options)) or 0


def with_engine(options: argparse.Namespace, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Call `work` with the engine that the settings, `--app` and `--database` select, and return its result.

    Workers are notified of the jobs it creates. A missing SQLite file is created with a warning, unless the command
    `may_be_first`.
    """
    from holdfast.assembly.engine import open_all

    settings = settings_of(options)
    if not options.may_be_first and (warning := new_database(settings)):
        print(printable(f"warning: {warning}; {RIGHT_DIRECTORY}"), file=sys.stderr)

    async def run() -> T:
        opened = await open_all(settings, app_parts(options))
        try:
            return await work(opened.engine)
        except NotFound as error:
            if error.code != "job_not_found":
                raise
            raise NotFound(
                f"{error.message}; the database is {place_of(settings.url)}: `holdfast jobs list` lists its jobs, "
                "--database, --app or HOLDFAST_DATABASE_URL select another one",
                code=error.code,
                **error.fields,
            ) from None
        finally:
            await opened.close()

    return asyncio.run(run())


async def machines_of(engine: Engine, jobs: list[Job]) -> dict[str, Machine]:
    """By job id, the lifecycle that the job was created with."""
    found = await engine.reads.snapshots(jobs)
    return {job.id: found[job.policy].machine for job in jobs}
