"""The connection for direct writes: small writes that a caller who is alone makes on the thread of its event loop.

To wake the writer thread, and to be woken by it, costs more than the statements of a small write. But a write that
blocks must block its caller only, not the event loop. So a direct write never waits for the lock of another connection,
and never copies the log back into the database. It waits for the disk: only while all commits are quick.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.store.identity import inode_of

QUICK_SECONDS = 0.001  # a commit that takes longer is for the writer thread, and so are those after it
QUICK_COMMITS = 3  # in a row, before direct writes begin or go on
DIRECT_MAX = 50  # direct writes after which the writer thread makes one: it copies the log back if it is long


class FileConnection(sqlite3.Connection):
    file: tuple[int, int] | None = None  # the device and inode of the open file


C = TypeVar("C", bound=FileConnection)


class DirectConnection(Generic[C]):
    """The writer thread opens it and tells how long each commit took; only the thread of the event loop uses it."""

    def __init__(self, path: Path, open_one: Callable[[], C], close_one: Callable[[C], None]) -> None:
        self._path, self._open_one, self._close_one = path, open_one, close_one
        self._connection: C | None = None
        self._quick = 0  # commits in a row
        self._left = DIRECT_MAX

    def open(self) -> None:
        if self._connection is None:
            connection = self._open_one()
            try:
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("PRAGMA wal_autocheckpoint = 0")
            except BaseException:
                self._close_one(connection)
                raise
            self._connection = connection

    def took(self, seconds: float) -> None:
        """A commit of either thread took so long."""
        self._quick = self._quick + 1 if seconds < QUICK_SECONDS else 0

    def begun(self) -> C | None:
        """The connection, with the write lock; None: this write is for the writer thread."""
        connection = self._connection
        if connection is None or self._quick < QUICK_COMMITS:
            return None
        if self._left == 0:
            self._left = DIRECT_MAX
            return None
        try:
            if connection.file != inode_of(self._path):  # replaced, as by a restore
                self.drop()
                return None
            connection.execute("BEGIN IMMEDIATE")
        except (sqlite3.Error, OSError):  # often a lock: the writer thread waits for it, and reports other errors
            return None
        self._left -= 1
        return connection

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._close_one(connection)
