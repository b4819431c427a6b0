"""A service manager tells every process of a service to stop, also one that is just starting and would die of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def born_deaf() -> Iterator[None]:
    """What is started in here hears of no stop until it calls `hear`; nor, for that moment, does this thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        hear()


def hear() -> None:
    """Once it is settled what they mean here."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
