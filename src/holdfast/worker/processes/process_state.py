"""The state of another process of this machine: running, stopped or gone."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

_PROC = Path("/proc/self/stat").exists()


class ProcessState(Enum):
    RUNNING = "running"
    STOPPED = "stopped"  # by a signal, or by a debugger
    GONE = "gone"  # zombies included


def state_of(pid: int, *, child_of: int | None = None) -> ProcessState:
    """With `child_of`, a process that reuses the pid of a dead child is not mistaken for it."""
    if not _PROC:
        return _state_by_signal(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ProcessState.GONE
    letter, parent = stat.rpartition(b")")[2].split(None, 2)[:2]  # the name of a program may contain brackets
    if letter in (b"Z", b"X", b"x") or (child_of is not None and int(parent) != child_of):
        return ProcessState.GONE
    return ProcessState.STOPPED if letter in (b"T", b"t") else ProcessState.RUNNING


def _state_by_signal(pid: int) -> ProcessState:
    """Without /proc a stopped process cannot be told from a running one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ProcessState.GONE
    return ProcessState.RUNNING
