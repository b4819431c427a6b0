"""`holdfast config show`: each setting, its value, and which layer it comes from."""

from __future__ import annotations

import argparse
import re
from typing import Any

import msgspec

from holdfast.cli.database import settings_of
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parser import command, group
from holdfast.settings import PREFIX, origins

HIDDEN = "***"


def add_to(commands: Any) -> None:
    verbs = group(commands, "config", about="the settings in force")
    command(
        verbs,
        "show",
        show,
        about="print each setting, its value, and where it comes from",
        more="The command line wins over the environment, that over holdfast.toml, that over the defaults. "
        "Passwords are not shown.",
        examples=["holdfast config show", "HOLDFAST_LEASE_SECONDS=60 holdfast config show --json"],
    )


def show(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    where = origins(overrides={"database_url": options.database})
    values = {**msgspec.to_builtins(settings), "database_url": without_password(settings.url)}
    if options.json:
        keys = ("name", "value", "origin", "variable")
        rows = [(name, value, where[name], f"{PREFIX}{name.upper()}") for name, value in values.items()]
        print_json({"settings": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        print_table(["setting", "value", "from"], ([name, _text(value), where[name]] for name, value in values.items()))
    return 0


def _text(value: Any) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"


def without_password(url: str) -> str:
    """A database URL as it may be shown: a password can stand before the host, or among the options."""
    hidden = re.sub(r"(://[^:/@?]*):.*@", rf"\1:{HIDDEN}@", url)
    return re.sub(r"([?&][^=&]*password[^=&]*=)[^&]*", rf"\1{HIDDEN}", hidden)
