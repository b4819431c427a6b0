"""Ending with the parent: however it died, and whatever this process is busy with."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent(fd: int | None = None, *, parent: int | None = None) -> None:
    """From now on this process ends when its parent does.

    Linux kills it, also while it spins in C. (It does so when the parent's *thread* that started it ends: start it
    from a thread that stays.) Elsewhere, and besides, a thread waits for the end of `fd`, a pipe or a socket whose
    other end only the parent holds. `parent` is the pid that the parent knew as its own.
    """
    expected = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected:  # it died before we asked to be told
        os._exit(0)
    if fd is not None:
        threading.Thread(target=_end_with, args=(fd,), name="holdfast-dying", daemon=True).start()


def _end_with(fd: int) -> None:
    """Asks for the end alone: what is there to be read is somebody else's."""
    end = select.poll()
    end.register(fd, select.POLLHUP)
    end.poll()
    os._exit(0)
