"""Single keys from the terminal, and the terminal as it was before, however the program ends."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Call `pressed` with what is typed, at once and without showing it; with nothing when the terminal is gone."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # what was typed already counts
        _without_suspend(terminal)
        loop.add_reader(terminal, lambda: pressed(os.read(terminal, 64).decode(errors="replace")))
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _without_suspend(terminal: int) -> None:
    """Ctrl-Z would leave the shell with a terminal that is neither its own nor ours."""
    modes = termios.tcgetattr(terminal)
    modes[6][termios.VSUSP] = b"\x00"
    termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
