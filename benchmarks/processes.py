"""Processes that a benchmark starts: servers and workers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HOLDFAST = ("-m", "holdfast.cli")
START_SECONDS = 30.0


class Listening(NamedTuple):
    pid: int
    port: int


@contextmanager
def process(folder: Path, *words: str, **variables: str) -> Iterator[int]:
    """Its process id."""
    with (folder / "log").open("a") as log:
        command = [sys.executable, *words]
        running = subprocess.Popen(command, cwd=folder, env=os.environ | variables, stdout=log, stderr=log)
        try:
            yield running.pid
        finally:
            running.terminate()
            running.wait()


@contextmanager
def listening(folder: Path, *words: str, **variables: str) -> Iterator[Listening]:
    """A server that is told its port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    with process(folder, *(word.format(port=port) for word in words), **variables) as pid:
        give_up = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up:
            with socket.socket() as knocking:
                if knocking.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Listening(pid, port)
