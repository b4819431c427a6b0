"""The form that all commands share: `--help` with examples, `--json`, `--database`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

Run = Callable[[argparse.Namespace], int]


def group(commands: Any, name: str, *, about: str) -> Any:
    """A noun, under which its verbs stand."""
    parser = commands.add_parser(name, help=about, description=_sentence(about), allow_abbrev=False)
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
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=" ".join(filter(None, (_sentence(about), more))),
        epilog="\n".join(["examples:", *(f"  {example}" for example in examples)]) if examples else None,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON, in a form that stays as it is")
    if database:
        parser.add_argument("--database", metavar="URL", help="work on this database, whatever the settings say")
    return parser


class _Formatter(argparse.HelpFormatter):
    """Descriptions are wrapped, examples are left as they stand."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


def _sentence(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}."
