"""Lock files: a process holds one as long as it lives, and the kernel frees it however the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

SUFFIX = ".lock"
OLD_SECONDS = 86_400  # longer than any lease that the file of a dead process could help to end early

# `struct flock` as the system lays it out. Elsewhere nobody can look, and nobody is judged.
_FIELDS = {
    "linux": ("hhqqi4x", ("type", "whence", "start", "length", "pid")),
    "darwin": ("qqihh", ("start", "length", "pid", "type", "whence")),
}
CAN_LOOK = sys.platform in _FIELDS

# What this process holds. Such a file must not be opened again: closing it would drop the lock, whoever had opened it.
_held: dict[Path, int] = {}


class LockFiles:
    """One file per process in a directory of our own.

    A record lock of POSIX belongs to the process: no child inherits it, and it does not outlive its holder.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()

    def hold(self, name: str) -> None:
        """Under its name it never appears unlocked, so whoever finds it free knows that its holder is gone."""
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
            except FileNotFoundError:  # somebody has just left, and was the last one
                if last:
                    raise
        raise AssertionError

    def let_go(self, name: str) -> None:
        """First the file, then the lock: a process that ended well is not found dead. The last one leaves nothing."""
        path = self._path(name)
        if path in _held:
            path.unlink(missing_ok=True)
            os.close(_held.pop(path))
            with contextlib.suppress(OSError):
                self._directory.rmdir()

    def is_free(self, name: str) -> bool:
        """Was its holder seen to be gone? False also when that cannot be judged."""
        return _is_free(self._path(name))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{SUFFIX}"

    def _remove_old(self, ours: Path) -> None:
        """Of those who died while they held no job, so that nobody asked about them."""
        now = ours.stat().st_mtime
        for path in self._directory.glob(f"*{SUFFIX}"):
            try:
                if now - path.stat().st_mtime > OLD_SECONDS and _is_free(path):
                    path.unlink()
            except FileNotFoundError:
                continue


def _is_free(path: Path) -> bool:
    if path in _held or not CAN_LOOK:
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # missing, or not ours to read
        return False
    try:
        return _lock_type(file) == fcntl.F_UNLCK
    finally:
        os.close(file)


def _lock_type(file: int) -> int:
    """Which lock would stand in our way? Asks, and takes nothing."""
    layout, names = _FIELDS[sys.platform]
    asked = {"type": fcntl.F_RDLCK, "whence": os.SEEK_SET, "start": 0, "length": 0, "pid": 0}
    answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(layout, *(asked[name] for name in names)))
    return int(dict(zip(names, struct.unpack(layout, answer), strict=True))["type"])
