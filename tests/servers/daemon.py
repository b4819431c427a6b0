"""A server program of our own for tests: its own directory and port on the loopback address, gone without a trace.

It can be killed, frozen and started again, with what it had on disk or empty. When the process that started it dies, a
guard beside it ends it and removes its directory.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

START_SECONDS = 120.0
STOP_SECONDS = 60.0

# Waits at the end of a pipe until its maker closes it or dies, however it dies; then ends the server, if it still runs.
GUARD = """
dir=$1; tries=0
cat >/dev/null
pid=$(cat "$dir/pid" 2>/dev/null)
alive() { [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }
alive && kill -KILL "$pid"
while alive && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
rm -rf "$dir"
"""


def guard(script: str, directory: Path) -> subprocess.Popen[bytes]:
    """Its standard input is the pipe that it waits at."""
    return subprocess.Popen(
        ["sh", "-c", script, "guard", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], how: signal.Signals, seconds: float = STOP_SECONDS) -> None:
    process.send_signal(how)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Daemon:
    """A subclass says how the program is started, and when it is ready."""

    name = "daemon"

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"holdfast-{self.name}-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = guard(GUARD, self.directory)

    @property
    def data(self) -> Path:
        """What a restart finds again, unless it is to be empty."""
        return self.directory / "data"

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "HOME": str(self.directory)}

    def is_ready(self) -> bool:
        """By default: its port accepts a connection."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        self.data.mkdir(exist_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data,
                env=self.environment(),
                start_new_session=True,
            )
        (self.directory / "pid").write_text(str(self._process.pid))
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(kill=True)
                raise RuntimeError(f"{self.name} did not start; the end of its log:\n{self._log_tail()}")
            time.sleep(0.02)

    def stop(self, *, kill: bool = False) -> None:
        """As it is meant to be stopped; or, with `kill`, on the spot."""
        if self._process is None:
            return
        end(self._process, signal.SIGKILL if kill else signal.SIGTERM)
        (self.directory / "pid").unlink(missing_ok=True)
        self._process = None

    def restart(self, *, kill: bool = False, empty: bool = False) -> None:
        """On the same port."""
        self.stop(kill=kill)
        if empty:
            shutil.rmtree(self.data, ignore_errors=True)
        self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Its connections stay open, and it answers nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.stop(kill=True)
        self._guard.communicate()

    @classmethod
    @contextlib.contextmanager
    def started(cls, *options: str) -> Iterator[Self]:
        daemon = cls(*options)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.close()

    def _log_tail(self) -> str:
        return "\n".join((self.directory / "log").read_text(errors="replace").splitlines()[-20:])


def free_port() -> int:
    """Below the range from which systems give outgoing connections their ports, so that a restart finds it free."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port on the loopback address")
