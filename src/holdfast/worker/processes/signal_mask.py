"""Blocks SIGINT and SIGTERM while a process starts, so that a signal to its group does not kill it half-started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """A process started inside inherits the mask until it calls `unblock_signals`; this thread is masked meanwhile."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        unblock_signals()


def unblock_signals() -> None:
    """Call it once the handlers for these signals are installed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
