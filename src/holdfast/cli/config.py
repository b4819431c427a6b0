"""`holdfast config show`: each setting, its value, and which layer it comes from."""

from __future__ import annotations

import argparse
import re
from typing import Any

import msgspec

from holdfast.cli.database import settings_of
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parser import command, group
from holdfast.settings import PREFIX, SECRET, origins

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
    values = {**msgspec.to_builtins(settings), "database_url": settings.url}
    values |= {name: without_password(values[name]) for name in SECRET}
    if options.json:
        keys = ("name", "value", "origin", "variable")
        rows = [(name, value, where[name], f"{PREFIX}{name.upper()}") for name, value in values.items()]
        print_json({"settings": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        print_table(["setting", "value", "from"], ([name, _text(value), where[name]] for name, value in values.items()))
    return 0


def _text(value: Any) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"


def without_password(secret: str) -> str:
    """As it may be shown: a database URL without the password before its host or among its options, else nothing."""
    if "://" not in secret:
        return HIDDEN if secret else ""
    shown = re.sub(r"(://[^:/@?]*):.*@", rf"\1:{HIDDEN}@", secret)
    return re.sub(r"([?&][^=&]*password[^=&]*=)[^&]*", rf"\1{HIDDEN}", shown)
