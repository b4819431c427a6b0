"""`Manifest`: describes an installed extension. Every process may import it, so it needs none of the extension's
extras and little of Holdfast."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.extension_settings import Secret, SettingsSection
from holdfast.lifecycle import Machine

__all__ = ["Argument", "Command", "CommandGroup", "Manifest", "Secret"]

KINDS = (str, int, bool)
_WORD = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_REFERENCE = re.compile(r"[\w.]+:\w+")
_OF_EVERY_COMMAND = ("--json", "--database", "--app", "--help")


@dataclass(frozen=True)
class Argument:
    """An argument of a command: `user`, or an option such as `--limit`. An option of the kind `bool` is a flag.

    `required`: by default an argument without a default is, and an option is not.
    """

    name: str
    about: str
    kind: type = str
    default: Any = None
    required: bool | None = None
    least: int = 0
    most: int | None = None
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.name.removeprefix("--")) or self.name in _OF_EVERY_COMMAND:
            raise _invalid(
                f"argument {self.name!r} is not a lower-case word, `user` or `--dry-run`, that is still free"
            )
        if self.kind not in KINDS or (self.kind is bool and not self.is_option):
            raise _invalid(f"argument {self.name!r} is of kind str or int, or an option of kind bool")

    @property
    def is_option(self) -> bool:
        return self.name.startswith("--")

    @property
    def key(self) -> str:
        """Its name in `call.arguments`: `dry_run` for `--dry-run`."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def is_required(self) -> bool:
        return not self.is_option and self.default is None if self.required is None else self.required


@dataclass(frozen=True, kw_only=True)
class Command:
    """`run` is the reference of its function, `module:function`, which is imported when the command runs."""

    name: str
    about: str
    run: str
    more: str = ""
    examples: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()

    def __post_init__(self) -> None:
        _check("command", self.name, self.about)
        if not _REFERENCE.fullmatch(self.run):
            raise _invalid(f"command {self.name!r} runs `module:function`, got {self.run!r}")
        _check_distinct(f"command {self.name!r}", "argument", (each.key for each in self.arguments))


@dataclass(frozen=True, kw_only=True)
class CommandGroup:
    """`holdfast NAME` with its commands."""

    name: str
    about: str
    commands: tuple[Command, ...]

    def __post_init__(self) -> None:
        _check("command group", self.name, self.about)
        _check_distinct(f"command group {self.name!r}", "command", (each.name for each in self.commands))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Found by an entry point of the group `holdfast.extensions` with the name of the extension.

    `app` is the reference of an app that includes it: its commands use that app where none is given.
    """

    name: str
    settings: type[msgspec.Struct] | None = None
    lifecycles: tuple[Machine, ...] = ()
    job_types: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    commands: tuple[CommandGroup, ...] = ()
    app: str | None = None

    def __post_init__(self) -> None:
        _check_distinct(f"extension {self.name!r}", "command group", (each.name for each in self.commands))

    @cached_property
    def section(self) -> SettingsSection | None:
        return None if self.settings is None else SettingsSection(self.name, self.settings)


def _check(what: str, name: str, about: str) -> None:
    if not about:
        raise _invalid(f"{what} {name!r} has no description: about=...")
    if not _WORD.fullmatch(name):
        raise _invalid(f"the name of a {what} is a lower-case word, such as `dry-run`, got {name!r}")


def _check_distinct(where: str, what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _invalid(f"{where} has two {what}s called {name!r}")
        seen.add(name)


def _invalid(wrong: str) -> Invalid:
    return Invalid(wrong, code="invalid_extension")
