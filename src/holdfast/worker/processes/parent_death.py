"""Ends this process when its parent dies, even while it is busy."""

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

    Linux kills it, even while it runs C code, when the *thread* that started it ends: start it from a thread that
    stays. On every system a thread also waits for the end of `fd`, a pipe or a socket whose other end only the parent
    holds. `parent` is the parent's pid as the parent knows it.
    """
    expected = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected:  # it died before the call
        os._exit(0)
    if fd is not None:
        threading.Thread(target=_end_with, args=(fd,), name="holdfast-parent-watch", daemon=True).start()


def _end_with(fd: int) -> None:
    """Polls for the hang-up only, and reads nothing."""
    end = select.poll()
    end.register(fd, select.POLLHUP)
    end.poll()
    os._exit(0)
