"""`holdfast doctor`: checks settings, database, broker and jobs, and suggests fixes."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.cli.app_option import app_parts
from holdfast.cli.database import RIGHT_DIRECTORY, new_database, origins_of, settings_of
from holdfast.cli.doctor.finding import Finding, fail, ok, warn
from holdfast.cli.exit_codes import FAILED
from holdfast.cli.output import Styled, print_json, print_table
from holdfast.cli.parser import command
from holdfast.errors import HoldfastError, SchemaStale
from holdfast.redaction import without_password
from holdfast.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.engine import Engine
    from holdfast.extend import Extension

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def add_to(commands: Any) -> None:
    command(
        commands,
        "doctor",
        run,
        about="check settings, database, broker and jobs, and suggest fixes",
        more="The exit code is 1 if a check fails; warnings do not change it. Nothing is repaired.",
        examples=["holdfast doctor", "holdfast doctor --database postgresql://localhost/jobs --json"],
    )


def run(options: argparse.Namespace) -> int:
    findings = asyncio.run(_run_checks(options))
    failed = any(finding.level == "fail" for finding in findings)
    if options.json:
        checks = [{**finding._asdict(), "remedy": finding.remedy or None} for finding in findings]
        print_json({"ok": not failed, "checks": checks})
    else:
        print_table(["", "check", "finding"], map(_row, findings))
    return FAILED if failed else 0


def _row(finding: Finding) -> list[Styled | str]:
    says = "; ".join(filter(None, (finding.says, finding.remedy)))
    return [Styled(finding.level, STYLES[finding.level]), finding.name, says]


async def _run_checks(options: argparse.Namespace) -> list[Finding]:
    from holdfast.assembly.engine import open_app_engine

    try:
        settings = settings_of(options)
    except HoldfastError as error:
        return [fail("settings", error.full)]
    made = new_database(settings)
    database = warn("database", made, RIGHT_DIRECTORY) if made else ok("database", without_password(settings.url))
    findings = [_settings(options), database]
    try:
        app = app_parts(options)
        engine = await open_app_engine(settings, app)
    except SchemaStale as error:
        return [*findings, fail("schema", error.full)]
    except HoldfastError as error:
        return [findings[0], fail("database", f"{without_password(settings.url)}: {error.full}")]
    try:
        return [*findings, *await _check_database(engine, settings), *await _checks(engine, app.extensions)]
    except HoldfastError as error:  # the findings so far are still printed
        return [*findings, fail("database", error.full)]
    finally:
        await engine.close()


def _settings(options: argparse.Namespace) -> Finding:
    found = Counter(origins_of(options).values())
    del found["default"]
    text = ", ".join(f"{number} from {layer}" for layer, number in found.items())
    return ok("settings", text or "all are defaults")


async def _check_database(engine: Engine, settings: Settings) -> list[Finding]:
    from holdfast.cli.doctor import broker, jobs, postgres, sqlite
    from holdfast.store.migrate import dialect_of

    dialect = dialect_of(settings.url)
    findings = [await _schema(engine, dialect)]
    if dialect == "postgres":
        findings += await postgres.examine(engine)
    else:
        findings += await sqlite.examine(engine, settings)
    return findings + await broker.examine(settings) + await jobs.examine(engine, settings)


async def _checks(engine: Engine, extensions: Iterable[Extension]) -> list[Finding]:
    """The checks of extensions."""
    probes = [probe for each in extensions for probe in each.checks]
    found = [(probe, await engine.reads.check_extension(probe)) for probe in probes]
    return [
        Finding(checked.level, f"{probe.extension}.{probe.name}", checked.says, checked.advice)
        for probe, checked in found
    ]


async def _schema(engine: Engine, dialect: str) -> Finding:
    from holdfast.store.migrate import CORE, migrations

    rows = await engine.reads.applied_migrations()
    applied = [row["name"] for row in rows if row["extension"] == CORE]
    newest = migrations(dialect)[-1].name
    if applied[-1] != newest:
        return warn(
            "schema",
            f"{applied[-1]} is newer than this release, which has {newest}",
            "upgrade Holdfast on this machine",
        )
    by_extension = {row["extension"]: row["name"] for row in rows if row["extension"] != CORE}
    others = "".join(f", and {extension} {name}" for extension, name in by_extension.items())
    return ok("schema", f"{newest} is current{others}")
