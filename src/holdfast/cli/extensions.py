"""`holdfast extensions`: which extensions the jobs of this database need, and the end of one that is no more."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.cli.confirm import confirmed, require_terminal
from holdfast.cli.database import BY, with_engine
from holdfast.cli.exit_codes import FAILED
from holdfast.cli.output import Cell, Styled, camel_keys, count, print_json, print_table, time_text
from holdfast.cli.parser import command, group

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.engine.admin.extensions import KnownExtension


def add_to(commands: Any) -> None:
    verbs = group(commands, "extensions", about="list extensions, and forget one that is no more")
    command(
        verbs,
        "list",
        list_all,
        about="list the extensions that the database knows: whether a live process has each, and what needs it",
        examples=["holdfast extensions list", "holdfast extensions list --json"],
    )
    forgetting = command(
        verbs,
        "forget",
        forget,
        about="let jobs go on without the hooks of an extension that no process has any more",
        more="For an extension that was renamed or retired. Its guards and effects do not run for these jobs, so that "
        "what they keep in step with the jobs, such as credits, may have to be corrected by hand. The tables of the "
        "extension stay. While a live process has it, nothing is forgotten.",
        examples=["holdfast extensions forget notes", "holdfast extensions forget notes --yes --json"],
    )
    forgetting.add_argument("name", metavar="NAME", help="the name of the extension")
    forgetting.add_argument("--yes", action="store_true", help="do not ask")


def list_all(options: argparse.Namespace) -> int:
    async def work(engine: Engine) -> int:
        found = await engine.extensions.all()
        if options.json:
            print_json({"extensions": [camel_keys(asdict(one)) for one in found]})
        else:
            print_table(["extension", "live", "seen", "job types", "unfinished jobs"], map(_row, found))
        return 0

    return with_engine(options, work)


def _row(one: KnownExtension) -> list[Cell]:
    seen = "never" if one.seen_at is None else f"{time_text(one.seen_at)} UTC"
    live = Styled("yes", "green") if one.live else Styled("no", "red" if one.jobs else "dim")
    return [one.name, live, seen, ", ".join(one.job_types) or "-", f"{one.jobs}"]


def forget(options: argparse.Namespace) -> int:
    if not options.yes:
        require_terminal("forget an extension")
        if not _confirmed(with_engine(options, lambda engine: engine.extensions.require_forgettable(options.name))):
            return FAILED

    async def work(engine: Engine) -> int:
        done = await engine.extensions.forget(options.name, by=BY)
        if options.json:
            print_json(camel_keys(asdict(done)))
        else:
            types = count(len(done.job_types), "job type")
            print(f"extension {done.name!r} is forgotten: {types} and {count(done.jobs, 'job')} need it no more")
        return 0

    return with_engine(options, work)


def _confirmed(one: KnownExtension) -> bool:
    jobs = count(one.jobs, "unfinished job")
    return confirmed(f"{jobs} will go on without the hooks of extension {one.name}.\nforget {one.name}?")
