"""Reads single key presses, and restores the terminal at the end."""

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
    """Call `pressed` with each key, without echo; with an empty text when the terminal is closed."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # keys typed before are kept
        _without_suspend(terminal)
        loop.add_reader(terminal, lambda: pressed(os.read(terminal, 64).decode(errors="replace")))
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _without_suspend(terminal: int) -> None:
    """Disable Ctrl-Z, which would leave the shell with a modified terminal."""
    modes = termios.tcgetattr(terminal)
    modes[6][termios.VSUSP] = b"\x00"
    termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
