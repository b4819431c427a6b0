"""Commands of installed extensions: added from their manifests, run with an app that includes the extension."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.cli.app_option import import_reference, named_app
from holdfast.cli.database import BY, with_engine
from holdfast.cli.exit_codes import FAILED
from holdfast.cli.output import Cell, Styled, print_json, print_table, time_text
from holdfast.cli.parser import command, group, whole_number
from holdfast.errors import Invalid
from holdfast.extension_settings import installed, installed_names
from holdfast.model.names import kind_of
from holdfast.redaction import printable

if TYPE_CHECKING:
    from holdfast.extend import Report
    from holdfast.manifest import Argument, Command, CommandGroup, Manifest

Function = Callable[..., Awaitable["Report"]]
OWN = "argument "  # before the names of its arguments in the namespace, which also has those of Holdfast


def add_to(commands: Any) -> None:
    """A group whose name is taken, or whose manifest cannot be imported, is left out with a warning."""
    found: dict[str, list[tuple[Manifest, CommandGroup]]] = {}
    for manifest in _manifests():
        for each in manifest.commands:
            found.setdefault(each.name, []).append((manifest, each))
    for name, declared in found.items():
        owners = " and ".join(repr(manifest.name) for manifest, _ in declared)
        if name in commands.choices:
            _warn(f"`holdfast {name}` is a command of Holdfast; that of extension {owners} is not available")
        elif len(declared) > 1:
            _warn(f"extensions {owners} both declare `holdfast {name}`; neither is available")
        else:
            _add_group(commands, *declared[0])


def _manifests() -> Iterator[Manifest]:
    for name in dict.fromkeys(installed_names()):
        try:
            yield from installed([name])
        except Invalid as error:
            _warn(error.message)


def _warn(text: str) -> None:
    print(printable(f"warning: {text}"), file=sys.stderr)


def _add_group(commands: Any, manifest: Manifest, declared: CommandGroup) -> None:
    verbs = group(commands, declared.name, about=declared.about)
    for each in declared.commands:
        run = partial(_run, manifest, f"holdfast {declared.name} {each.name}", each)
        parser = command(verbs, each.name, run, about=each.about, more=each.more, examples=each.examples)
        parser.set_defaults(default_app=manifest.app)
        for argument in each.arguments:
            _add_argument(parser, argument)


def _add_argument(parser: argparse.ArgumentParser, argument: Argument) -> None:
    given: dict[str, Any] = {"help": argument.about}
    if argument.kind is bool:
        given["action"] = "store_true"
    else:
        given["type"] = whole_number(argument.least, argument.most) if argument.kind is int else str
        given |= {"default": argument.default, "choices": argument.choices or None, "metavar": _metavar(argument)}
        if argument.default is not None:
            given["help"] += f" ({argument.default})"
    if argument.is_option:
        parser.add_argument(argument.name, dest=OWN + argument.key, required=argument.is_required, **given)
    else:
        parser.add_argument(OWN + argument.key, nargs=None if argument.is_required else "?", **given)


def _metavar(argument: Argument) -> str | None:
    if not argument.is_option:
        return argument.name.upper()
    return None if argument.choices else "N" if argument.kind is int else "TEXT"


# -- running ----------------------------------------------------------------------------------------------------


def _run(manifest: Manifest, typed: str, declared: Command, options: argparse.Namespace) -> int:
    from holdfast.extend import CommandCall, Report

    _require_extension(manifest, typed, options)
    function = _function(declared.run)
    arguments = {each.key: getattr(options, OWN + each.key) for each in declared.arguments}
    report = with_engine(options, lambda engine: function(CommandCall(engine.store, arguments, BY)))
    if not isinstance(report, Report):
        raise _invalid(f"{declared.run} returned {kind_of(report)}, not a holdfast.extend.Report")
    _print(options, report)
    return FAILED if report.failed else 0


def _require_extension(manifest: Manifest, typed: str, options: argparse.Namespace) -> None:
    app = named_app(options)
    if app is None or manifest.name not in app.extensions:
        given = "no app is given" if app is None else f"{app.described} does not include it"
        raise Invalid(
            f"`{typed}` needs an app that includes extension {manifest.name!r}, and {given}; "
            f"use --app {manifest.app or 'MODULE:APP'}",
            code="invalid_app",
        )


def _function(reference: str) -> Function:
    found: Function = import_reference(reference)
    if not inspect.iscoroutinefunction(found):
        raise _invalid(f"{reference} must be an async function, got {kind_of(found)}")
    return found


def _invalid(wrong: str) -> Invalid:
    return Invalid(wrong, code="invalid_extension")


def _print(options: argparse.Namespace, report: Report) -> None:
    if options.json:
        print_json(report.data)
        return
    if report.table is not None:
        titles, rows = report.table
        right = [all(isinstance(cell, int | float) for cell in column) for column in zip(*rows, strict=True)]
        aligned = [Styled(title, right=True) if number else title for title, number in zip(titles, right, strict=False)]
        print_table([*aligned, *titles[len(aligned) :]], [[_cell(cell) for cell in row] for row in rows])
    for line in report.lines:
        print(printable(line))


def _cell(value: Any) -> Cell:
    if value is None:
        return ""
    return time_text(value) if isinstance(value, datetime) else str(value)
