"""`holdfast extensions`: lists the extensions that jobs need, and removes one that is no longer used."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.cli.confirm import confirmed, require_terminal
from holdfast.cli.database import BY, on_engine, with_engine
from holdfast.cli.exit_codes import FAILED
from holdfast.cli.output import Cell, Styled, camel_keys, count, print_json, print_result, print_table, time_text
from holdfast.cli.parser import command, group, list_command

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.engine.admin.extensions import KnownExtension


def add_to(commands: Any) -> None:
    verbs = group(commands, "extensions", about="list extensions, and forget one that is no longer used")
    list_command(
        verbs,
        "extensions",
        list_all,
        about="list known extensions: whether a live process has each, and which job types need it",
    )
    forgetting = command(
        verbs,
        "forget",
        forget,
        about="detach jobs from an extension that no process has any more",
        more="For an extension that was renamed or retired. The jobs continue without its guards and effects, so data "
        "that the effects maintain, such as credits, may need manual correction. The extension's tables are kept. The "
        "command fails while a live process has the extension.",
        examples=["holdfast extensions forget notes", "holdfast extensions forget notes --yes --json"],
    )
    forgetting.add_argument("name", metavar="NAME", help="name of the extension")
    forgetting.add_argument("--yes", action="store_true", help="skip the confirmation")


@on_engine
async def list_all(engine: Engine, options: argparse.Namespace) -> None:
    found = await engine.extensions.all()
    if options.json:
        print_json({"extensions": [camel_keys(asdict(one)) for one in found]})
    else:
        print_table(["extension", "live", "seen", "job types", "unfinished jobs"], map(_row, found))


def _row(one: KnownExtension) -> list[Cell]:
    seen = "never" if one.seen_at is None else f"{time_text(one.seen_at)} UTC"
    live = Styled("yes", "green") if one.live else Styled("no", "red" if one.jobs else "dim")
    return [one.name, live, seen, ", ".join(one.job_types) or "-", f"{one.jobs}"]


def forget(options: argparse.Namespace) -> int:
    if not options.yes:
        require_terminal("forget an extension")
        one = with_engine(options, lambda engine: engine.extensions.require_forgettable(options.name))
        jobs = count(one.jobs, "unfinished job")
        if not confirmed(f"{jobs} will continue without the hooks of extension {one.name}.\nforget {one.name}?"):
            return FAILED
    done = with_engine(options, lambda engine: engine.extensions.forget(options.name, by=BY))
    detached = f"{count(len(done.job_types), 'job type')} and {count(done.jobs, 'job')}"
    print_result(options, camel_keys(asdict(done)), f"extension {done.name!r} is forgotten: detached {detached}")
    return 0
