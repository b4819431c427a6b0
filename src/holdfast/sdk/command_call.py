"""What the function of an extension's command takes and returns: `async def check(call: CommandCall) -> Report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.store import PostgresStore, SqliteStore
from holdfast.store.open_transaction import OneTransaction


class CommandCall(OneTransaction):
    """A command with its arguments by name (`dry_run` for `--dry-run`), and the actor for the audit log.

    `await call.read(lambda tx: ...)` runs queries that write nothing; `async with call.tx() as tx` is a transaction.
    """

    def __init__(self, store: PostgresStore | SqliteStore, arguments: Mapping[str, Any], by: str) -> None:
        super().__init__(store, "command")
        self.arguments, self.by = dict(arguments), by


@dataclass(frozen=True)
class Report:
    """What a command prints: `data` with `--json`, names in camelCase; otherwise the table, and then the lines.

    `table` is the titles of the columns and the rows. `failed`: the exit code is 1.
    """

    data: Mapping[str, Any]
    lines: Sequence[str] = ()
    table: tuple[Sequence[str], Sequence[Sequence[Any]]] | None = None
    failed: bool = False
