"""A terminal whose other end the test holds: it sees what is drawn, and presses keys."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

from tests.cli.processes import PROGRAM, SECONDS, environment, without_escapes

OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
HOME = "\x1b[H"


class Screen:
    """The program does not outlive the `with`; the terminal does, so that its modes can be looked at."""

    def __init__(self, *arguments: str, folder: Path, columns: int = 120, lines: int = 40, **variables: str) -> None:
        self._ours, self._its = pty.openpty()
        self.resize(columns, lines)
        self.modes = self.modes_now()
        self.drawn = ""
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=folder,
            env=environment(**variables),
            stdin=self._its,
            stdout=self._its,
            stderr=self._its,
            start_new_session=True,
        )

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._ours)
        os.close(self._its)

    def modes_now(self) -> list[Any]:
        return termios.tcgetattr(self._its)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, *words: str) -> str:
        """The picture that has all these words, without escapes; what was drawn before it is forgotten."""
        give_up = time.monotonic() + SECONDS
        while time.monotonic() < give_up:
            for picture in self.drawn.split(HOME)[1:]:
                if all(word in (seen := without_escapes(picture)) for word in words):
                    self.drawn = self.drawn[self.drawn.index(picture) + len(picture) :]
                    return seen
            self._read()
        raise AssertionError(f"{words} never appeared; the last picture:\n{self.drawn[-3000:]}")

    def end(self, number: signal.Signals | None = None) -> int:
        """Its exit code, once it has ended by itself or by this signal."""
        if number is not None:
            self.process.send_signal(number)
        give_up = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < give_up:
            self._read()
        self._read()
        return self.process.wait(0)

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], 0.1)
        if ready:
            self.drawn += os.read(self._ours, 1 << 20).decode(errors="replace")
