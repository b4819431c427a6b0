"""The command line: one file per group of commands. Here an error becomes a sentence and an exit code."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from importlib.metadata import version

from holdfast.cli import bench, completion, config, dev, doctor, jobs, lifecycle, migrate, queues, top, worker, workers
from holdfast.cli.exits import INTERRUPTED, PIPE_CLOSED, code_of
from holdfast.cli.output import printable
from holdfast.errors import HoldfastError

# As `holdfast --help` lists them.
COMMANDS = (dev, worker, top, migrate, jobs, queues, workers, lifecycle, config, doctor, bench, completion)


def main(arguments: list[str] | None = None) -> int:
    as_json = False
    try:
        _print_anything()
        options = make_parser().parse_args(arguments)
        as_json = getattr(options, "json", False)
        code = int(options.run(options))
        sys.stdout.flush()  # while what goes wrong with it can still be caught
        return code
    except HoldfastError as error:
        said = {"code": error.code, "message": error.message}
        print(json.dumps(said) if as_json else printable(f"holdfast: {error.message}", keep="\n"), file=sys.stderr)
        return code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has seen enough; Python must not try to write the rest at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="Durable jobs on PostgreSQL or SQLite.",
        epilog="`holdfast COMMAND --help` explains a command, with examples.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {version('holdfast')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add_to(commands)
    parser.set_defaults(parser=parser)
    return parser


def _print_anything() -> None:
    """A terminal that lacks a character shows its number instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
