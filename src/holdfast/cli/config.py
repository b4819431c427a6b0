"""`holdfast config show`: prints each setting, its value and its origin."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.app_option import app_parts, named_app
from holdfast.cli.database import origins_of, settings_of
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parser import command, group
from holdfast.extension_settings import ShownSetting, installed
from holdfast.settings import shown, shown_section


def add_to(commands: Any) -> None:
    verbs = group(commands, "config", about="show the effective settings")
    command(
        verbs,
        "show",
        show,
        about="print each setting with its value and its origin",
        more="Precedence: command line, environment, holdfast.toml, defaults. Passwords are not shown. Settings of "
        "extensions come last: of those that the app includes, and of those that are installed.",
        examples=["holdfast config show", "HOLDFAST_LEASE_SECONDS=60 holdfast config show --json"],
    )


def show(options: argparse.Namespace) -> int:
    from holdfast.assembly.engine import policy_settings

    settings = settings_of(options)
    policy_settings(settings).check(app_parts(options).lifecycles)  # as opening the database does
    rows = [*shown(settings, origins_of(options)), *_extension_settings(options)]
    if options.json:
        print_json({"settings": [row._asdict() for row in rows]})
    else:
        print_table(["setting", "value", "from"], ([row.name, _text(row.value), row.origin] for row in rows))
    return 0


def _extension_settings(options: argparse.Namespace) -> list[ShownSetting]:
    """Settings of extensions that the app includes, and of those that are installed."""
    app = named_app(options)
    included = {} if app is None else app.extensions
    rows = [row for each in included.values() for row in each.shown_settings()]
    for manifest in installed():
        if manifest.name not in included and manifest.section is not None:
            rows += shown_section(manifest.section)
    return rows


def _text(value: Any) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"
