"""A command that goes on while others are typed: `holdfast dev`, `holdfast worker`."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli.processes import PROGRAM, SECONDS, environment


class Background:
    """What it prints goes to a file, as behind a pipe. It does not outlive the `with`."""

    def __init__(self, *arguments: str, folder: Path, program: list[str] = PROGRAM, **variables: str) -> None:
        self._output = folder / f"{'-'.join(arguments)[:40].replace('/', '-')}.{time.monotonic_ns()}.log"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*program, *arguments],
                cwd=folder,
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)

    @property
    def said(self) -> str:
        return self._output.read_text()

    def until_it_says(self, *words: str) -> None:
        until(lambda: all(word in self.said for word in words) or self.process.poll() is not None)
        assert all(word in self.said for word in words), self.said

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Asks again and again; what does not come true in all that time never will."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come true"
        time.sleep(0.05)
