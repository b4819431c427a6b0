"""The command line: one file per group of commands."""

from __future__ import annotations

import argparse
import sys

from holdfast.cli import migrate
from holdfast.errors import HoldfastError, Invalid

FAILED, USAGE = 1, 2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="holdfast", description="Durable jobs on PostgreSQL or SQLite.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    migrate.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except HoldfastError as error:
        print(f"holdfast: {error.message}", file=sys.stderr)
        return USAGE if isinstance(error, Invalid) else FAILED
