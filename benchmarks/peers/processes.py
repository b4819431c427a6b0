"""Worker processes seen from outside: started in groups of their own, measured with their children, ended by id."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.environments import DRIVERS

STOP_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Iterable[int]) -> float:
    """Of these processes, their descendants, and what descendants used that have ended since."""
    return sum(_family(roots).values())


def _family(roots: Iterable[int]) -> dict[int, float]:
    """These processes and all their descendants, with the CPU seconds of each."""
    known = _table()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in known.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, float] = {}
    todo = [pid for pid in roots if pid in known]
    while todo:
        pid = todo.pop()
        found[pid] = known[pid][1]
        todo += children.get(pid, [])
    return found


def _table() -> dict[int, tuple[int, float]]:
    """Each process, its parent and its CPU seconds, those of children it has waited for included."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
    return found


class Workers:
    """The processes of one worker, or of several that are started at the same moment."""

    def __init__(self, commands: Sequence[Sequence[str]], environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._processes = [
                subprocess.Popen(
                    command,
                    env=dict(environ),
                    cwd=DRIVERS,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                for command in commands
            ]

    def cpu_seconds(self) -> float:
        return cpu_seconds(process.pid for process in self._processes)

    def check(self) -> None:
        for process in self._processes:
            if _ended(process):
                raise RuntimeError(f"a worker ended by itself; {self.last_words()}")

    def last_words(self) -> str:
        return f"the end of its output:\n{self._log.read_text(errors='replace')[-1500:]}"

    def stop(self) -> None:
        """SIGTERM, as an operator would send it; a process that does not stop is killed."""
        for process in self._processes:
            _signal(os.kill, process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and not all(map(_ended, self._processes)):
            time.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """`kill -9` of them and all their children, also those that left the group."""
        for pid in _family(process.pid for process in self._processes):
            _signal(os.kill, pid, signal.SIGKILL)
        for process in self._processes:
            _signal(os.killpg, process.pid, signal.SIGKILL)
            process.wait()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Without reaping it, so that its id is not reused before `kill`."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(how: Callable[[int, int], None], number: int, sent: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        how(number, sent)
