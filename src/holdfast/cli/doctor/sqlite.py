"""`holdfast doctor`: checks of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.doctor import indexes
from holdfast.cli.doctor.finding import Finding, fail, ok, warn
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.store.diagnostics import SqliteState


async def examine(engine: Engine, settings: Settings) -> list[Finding]:
    from holdfast.store.diagnostics import indexes_of
    from holdfast.store.migrate import sqlite_path

    state = await engine.reads.sqlite_state()
    return [
        _version(state),
        _journal(state),
        _permissions(sqlite_path(settings.url)),
        _integrity(state),
        indexes.check_indexes(indexes_of("sqlite"), state.indexes),
    ]


def _version(state: SqliteState) -> Finding:
    from holdfast.store.diagnostics import SQLITE_REMEDY, sqlite_defect

    if (defect := sqlite_defect(state.version)) is None:
        return ok("library", f"SQLite {state.version}")
    return warn("library", defect, SQLITE_REMEDY)


def _journal(state: SqliteState) -> Finding:
    if state.journal_mode == "wal":
        return ok("journal", "write-ahead log")
    return fail("journal", f"is {state.journal_mode!r}, not a write-ahead log", "move the file to a local disk")


def _permissions(path: Path) -> Finding:
    files = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]
    shared = [file.name for file in files if file.exists() and file.stat().st_mode & 0o077]
    if not shared:
        return ok("permissions", "only the owner can read the file")
    return warn(
        "permissions", f"other users can read {', '.join(shared)}, including payloads", f"chmod 600 {' '.join(shared)}"
    )


def _integrity(state: SqliteState) -> Finding:
    if not state.faults:
        return ok("file", "quick_check found no errors")
    return fail("file", f"is corrupt: {state.faults[0]}", "stop all processes, keep a copy, and restore a backup")
