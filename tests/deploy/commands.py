"""Commands and variables in the files of deploy/: that they are ones Holdfast has."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import PurePosixPath

from holdfast.cli.commands import make_parser
from holdfast.settings import NAMES, SECRET

VARIABLES = {f"HOLDFAST_{name.upper()}" for name in NAMES} | {f"HOLDFAST_{name.upper()}_FILE" for name in SECRET}


def parsed(command: list[str]) -> argparse.Namespace:
    """Ends the test if `holdfast` would not take it."""
    program, *arguments = command
    assert PurePosixPath(program).name == "holdfast", command
    return make_parser().parse_args(arguments)


def unknown(variables: Iterable[str]) -> set[str]:
    return {name for name in variables if name.startswith("HOLDFAST_")} - VARIABLES
