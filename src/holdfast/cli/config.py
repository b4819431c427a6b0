"""`holdfast config show`: each setting, its value, and which layer it comes from."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.app_option import named_app
from holdfast.cli.database import check_lifecycles, origins_of, settings_of
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parser import command, group
from holdfast.extension_settings import ShownSetting, installed
from holdfast.settings import shown, shown_section


def add_to(commands: Any) -> None:
    verbs = group(commands, "config", about="the settings in force")
    command(
        verbs,
        "show",
        show,
        about="print each setting, its value, and where it comes from",
        more="The command line wins over the environment, that over holdfast.toml, that over the defaults. "
        "Passwords are not shown. Settings of extensions come last: those of the app's, and of those installed.",
        examples=["holdfast config show", "HOLDFAST_LEASE_SECONDS=60 holdfast config show --json"],
    )


def show(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    check_lifecycles(options, settings)
    rows = [*shown(settings, origins_of(options)), *_of_extensions(options)]
    if options.json:
        print_json({"settings": [row._asdict() for row in rows]})
    else:
        print_table(["setting", "value", "from"], ([row.name, _text(row.value), row.origin] for row in rows))
    return 0


def _of_extensions(options: argparse.Namespace) -> list[ShownSetting]:
    """Those that the app includes, and those that are installed."""
    app = named_app(options)
    included = {} if app is None else app.extensions
    rows = [row for each in included.values() for row in each.shown_settings()]
    for manifest in installed():
        if manifest.name not in included and manifest.section is not None:
            rows += shown_section(manifest.section)
    return rows


def _text(value: Any) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"
