"""Lock files for crash detection on SQLite: the kernel releases the lock of a process however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

SUFFIX = ".lock"
OLD_SECONDS = 86_400  # longer than any lease

# The layout of `struct flock`. On other systems locks cannot be queried, and no crash is detected.
_FIELDS = {
    "linux": ("hhqqi4x", ("type", "whence", "start", "length", "pid")),
    "darwin": ("qqihh", ("start", "length", "pid", "type", "whence")),
}
CAN_QUERY_LOCKS = sys.platform in _FIELDS

# The locks of this process. Such a file must not be opened again: closing any descriptor of it drops the lock.
_held: dict[Path, int] = {}


class LockFiles:
    """One file per process, in a directory beside the database.

    A POSIX record lock belongs to the process: children do not inherit it, and it ends with the process.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()

    def hold(self, name: str) -> None:
        """Lock a new file, then rename it: under its final name it is never unlocked while the process lives."""
        path, new = self._path(name), self._directory / f".{name}"
        file = self._create(new)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _held[path] = file
            new.rename(path)
        except OSError:
            _held.pop(path, None)
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        self._remove_old(path)

    def _create(self, path: Path) -> int:
        for last in (False, False, True):
            self._directory.mkdir(mode=0o700, exist_ok=True)
            try:
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # the last process has just removed the directory
                if last:
                    raise
        raise AssertionError

    def release(self, name: str) -> None:
        """Remove the file before the lock: a clean exit is not a crash. The last process removes the directory."""
        path = self._path(name)
        if path in _held:
            path.unlink(missing_ok=True)
            os.close(_held.pop(path))
            with contextlib.suppress(OSError):
                self._directory.rmdir()

    def is_free(self, name: str) -> bool:
        """Has its process ended? False also if that is unknown."""
        return _is_free(self._path(name))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{SUFFIX}"

    def _remove_old(self, ours: Path) -> None:
        """Remove the files of processes that crashed without a lease."""
        now = ours.stat().st_mtime
        for path in self._directory.glob(f"*{SUFFIX}"):
            try:
                if now - path.stat().st_mtime > OLD_SECONDS and _is_free(path):
                    path.unlink()
            except FileNotFoundError:
                continue


def _is_free(path: Path) -> bool:
    if path in _held or not CAN_QUERY_LOCKS:
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # missing or unreadable
        return False
    try:
        return _lock_type(file) == fcntl.F_UNLCK
    finally:
        os.close(file)


def _lock_type(file: int) -> int:
    """The type of the conflicting lock, by F_GETLK, which takes no lock."""
    layout, names = _FIELDS[sys.platform]
    asked = {"type": fcntl.F_RDLCK, "whence": os.SEEK_SET, "start": 0, "length": 0, "pid": 0}
    answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(layout, *(asked[name] for name in names)))
    return int(dict(zip(names, struct.unpack(layout, answer), strict=True))["type"])
