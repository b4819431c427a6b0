"""`holdfast init`: writes a small app, its tests and a compose file."""

from __future__ import annotations

import argparse
import os
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.cli.output import print_json
from holdfast.cli.parser import command
from holdfast.errors import Conflict, Invalid

# The files, with descriptions.
FILES = {
    "tasks.py": "an app with one job",
    "test_tasks.py": "its tests",
    "compose.yaml": "PostgreSQL, a server and a worker",
}

NEXT = """
Next{where}:
  holdfast dev --app tasks:app   run the job on SQLite; prints how to create one
  pytest                         run the tests (`pip install pytest`)
  docker compose up --build      the same app on PostgreSQL, with a server and a worker; see compose.yaml for
                                 the wheel that it needs
"""

BEGIN = """\
Holdfast runs durable jobs on PostgreSQL or SQLite. To get started:
  holdfast init                  write a small app, its tests and a compose file into this directory
  holdfast dev                   run the bundled example: server and worker in one process, on SQLite
  holdfast dev --app tasks:app   run your own jobs
  holdfast --help                list all commands; `holdfast COMMAND --help` explains one"""


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "init",
        init,
        about="write a small app, its tests and a compose file",
        more="Existing files are not overwritten.",
        examples=["holdfast init", "holdfast init shop"],
        database=False,
    )
    parser.add_argument(
        "directory", nargs="?", default=".", metavar="DIRECTORY", help="where to write them (the current directory)"
    )


def init(options: argparse.Namespace) -> int:
    home = Path(options.directory)
    _require_no_files(home)
    written = _write(home)
    if options.json:
        print_json({"written": [str(path) for path in written]})
        return 0
    width = max(len(str(path)) for path in written)
    for path in written:
        print(f"wrote {path!s:<{width}}  {FILES[path.name]}")
    print(NEXT.format(where="" if home == Path() else f", in {home}"), end="")
    return 0


def _require_no_files(home: Path) -> None:
    taken = [name for name in FILES if os.path.lexists(home / name)]
    if taken:
        raise Conflict(
            f"{', '.join(taken)} exist{'s' if len(taken) == 1 else ''} in {home.absolute()}, and nothing was written; "
            "choose an empty directory: `holdfast init DIRECTORY`",
            code="file_exists",
        )


def _write(home: Path) -> list[Path]:
    written = []
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
            with (home / name).open("x", encoding="utf-8") as file:
                file.write(text.replace("{version}", version("holdfast")))
            written.append(home / name)
    except OSError as error:
        raise Invalid(f"cannot write into {home.absolute()}: {error.strerror}", code="cannot_write") from None
    return written
