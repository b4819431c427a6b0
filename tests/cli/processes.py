"""`holdfast` as a process of its own: behind a pipe, or on a terminal that the test holds the other end of."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

PROGRAM = [sys.executable, "-m", "holdfast.cli"]
SECONDS = 60
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def environment(**variables: str) -> dict[str, str]:
    """Nothing of ours from the shell that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "COLUMNS", "LINES"))}
    return kept | {"TERM": "xterm"} | variables


def holdfast(*arguments: str, folder: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment(HOLDFAST_DATABASE_URL=url),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def on_terminal(
    *arguments: str,
    folder: Path,
    program: list[str] = PROGRAM,
    typed: str = "",
    interrupt_at: str = "",
    columns: int = 120,
    **variables: str,
) -> tuple[int, str]:
    """The exit code, and everything that appeared, escape sequences included. Ctrl-C comes when a text appears."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*program, *arguments], cwd=folder, env=environment(**variables), stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    os.write(ours, typed.encode())
    try:
        seen = _read_all(ours, process, interrupt_at)
        return process.wait(SECONDS), seen.replace("\r\n", "\n")
    finally:
        process.kill()
        os.close(ours)


def _read_all(descriptor: int, process: subprocess.Popen[bytes], interrupt_at: str) -> str:
    seen = b""
    try:
        while piece := os.read(descriptor, 65_536):
            seen += piece
            if interrupt_at and interrupt_at.encode() in seen:
                process.send_signal(signal.SIGINT)
                interrupt_at = ""
    except OSError:  # Linux says so when the last one at the other end is gone
        pass
    return seen.decode()


def without_escapes(text: str) -> str:
    """What a person sees; spaces at the ends of lines are not seen."""
    return "\n".join(line.rstrip() for line in _ESCAPE.sub("", text).splitlines()) + "\n"
