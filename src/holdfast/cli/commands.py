"""The list of commands, and the top level: an error is printed as a sentence and becomes an exit code."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
from importlib.metadata import version

from holdfast.cli import (
    bench,
    completion,
    config,
    dev,
    doctor,
    extension_commands,
    extensions,
    init,
    jobs,
    keys,
    lifecycle,
    limits,
    migrate,
    queues,
    serve,
    top,
    worker,
    workers,
)
from holdfast.cli.exit_codes import PIPE_CLOSED, code_of
from holdfast.cli.parser import Formatter, Parser, Usage
from holdfast.errors import HoldfastError
from holdfast.model.process_role import name_process
from holdfast.observe.logs import is_json
from holdfast.redaction import printable

log = logging.getLogger("holdfast")

# As `holdfast --help` lists them.
COMMANDS = (
    init,
    dev,
    serve,
    worker,
    top,
    migrate,
    jobs,
    queues,
    limits,
    workers,
    keys,
    extensions,
    lifecycle,
    config,
    doctor,
    bench,
    completion,
)

# `application_name` of the PostgreSQL connections of a command; the others use `holdfast cli`.
ROLES = {"dev": "dev", "serve": "server", "worker": "worker"}


def run(arguments: list[str] | None) -> int:
    typed = sys.argv[1:] if arguments is None else arguments
    try:
        _escape_unencodable()
        if not typed:
            print(init.BEGIN)
            return 0
        options = make_parser(first=typed[0]).parse_args(typed)
        name_process(ROLES.get(typed[0], "cli"))
        code = int(options.run(options))
        sys.stdout.flush()  # errors can still be caught here
        return code
    except HoldfastError as error:
        if is_json():  # the log is JSON
            log.critical("%s", error.full, extra={"code": error.code})
        else:
            print(_error_text(error, as_json="--json" in typed), file=sys.stderr)
        return code_of(error)
    except BrokenPipeError:  # such as `| head`: Python must not flush the rest at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _error_text(error: HoldfastError, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"code": error.code, "message": error.full})
    usage = error.usage if isinstance(error, Usage) else ""
    return printable(f"{usage}holdfast: {error.full}", keep="\n")


def make_parser(first: str | None = None) -> argparse.ArgumentParser:
    """`first`: the first word that was typed. The manifests of extensions are imported only if it may need them."""
    parser = Parser(
        prog="holdfast",
        description="Durable jobs on PostgreSQL or SQLite.",
        epilog="`holdfast COMMAND --help` explains a command, with examples.",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {version('holdfast')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add_to(commands)
    if first in (None, "completion") or first not in (*commands.choices, "--version"):
        extension_commands.add_to(commands)
    parser.set_defaults(parser=parser)
    return parser


def _escape_unencodable() -> None:
    """Escape characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
