"""The argument parser of all commands: `--help` with examples, `--json`, `--database`, `--app`, and suggestions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from holdfast.errors import Invalid

Run = Callable[[argparse.Namespace], int]


class Usage(Invalid):
    """Invalid arguments; `usage` is the usage line of the command."""

    code = "usage"

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """Raises Holdfast errors, and reports unknown arguments with the usage of the subcommand."""

    def error(self, message: str) -> NoReturn:
        raise Usage(message, self.format_usage())

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        if not any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            self._reject_unknown(args or ())
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unexpected arguments: {' '.join(left)}")
        return found, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A misspelled command gets a suggestion."""
        if isinstance(action, argparse._SubParsersAction) and value not in (known := list(action.choices)):
            near = get_close_matches(value, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            self.error(f"unknown command {value!r}; {hint}")
        super()._check_value(action, value)

    def _reject_unknown(self, typed: Sequence[str]) -> None:
        """Before missing arguments are reported: they are usually missing because of the typo."""
        known = list(self._option_string_actions)
        for word in typed:
            name = word.partition("=")[0]
            if word == "--":
                return
            if word.startswith("--") and " " not in word and name not in known:
                near = get_close_matches(name, known, n=1)
                self.error(f"unknown option {name}" + (f"; did you mean {near[0]}?" if near else ""))


def names(text: str) -> list[str]:
    """`a,b`: at least one."""
    found = [name for part in text.split(",") if (name := part.strip())]
    if not found:
        raise argparse.ArgumentTypeError("give at least one name, or leave it out")
    return found


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an argument: a number in this range."""

    def parsed(text: str) -> int:
        number = int(text) if text.removeprefix("-").isdecimal() else None
        if number is not None and least <= number and (most is None or number <= most):
            return number
        end = "up" if most is None else f"to {most:,}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} {end}")

    return parsed


def _url(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("give a database URL, or leave it out")
    return text


def group(commands: Any, name: str, *, about: str) -> Any:
    """A command with subcommands."""
    parser = commands.add_parser(
        name, help=about, description=_sentence(about), formatter_class=Formatter, allow_abbrev=False
    )
    return parser.add_subparsers(required=True, metavar="COMMAND")


def command(
    commands: Any,
    name: str,
    run: Run,
    *,
    about: str,
    more: str = "",
    examples: Iterable[str] = (),
    database: bool = True,
    json: bool = True,
    may_be_first: bool = False,
) -> argparse.ArgumentParser:
    """`may_be_first`: it may be the first command on a new database, so creating the file needs no warning."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=" ".join(filter(None, (_sentence(about), more))),
        epilog="\n".join(["examples:", *(f"  {example}" for example in examples)]) if examples else None,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, may_be_first=may_be_first)
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    if database:
        parser.add_argument(
            "--database", metavar="URL", type=_url, help="use this database instead of the one in the settings"
        )
        parser.add_argument(
            "--app",
            metavar="MODULE:APP",
            help="the app, such as tasks:app, imported with the current directory first on the path, or "
            "path/to/tasks.py:app for an app in a file; the command uses its database (default: HOLDFAST_APP)",
        )
    return parser


def list_command(verbs: Any, noun: str, run: Run, *, about: str) -> None:
    examples = [f"holdfast {noun} list", f"holdfast {noun} list --json"]
    command(verbs, "list", run, about=about, examples=examples)


class Formatter(argparse.HelpFormatter):
    """Descriptions are wrapped, examples are not; a `%` in a help text is a `%`."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)

    def _expand_help(self, action: argparse.Action) -> str:
        return action.help or ""


def _sentence(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}."
