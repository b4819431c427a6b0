"""Non-blocking writer for log lines: written at once, in order, and never waited for.

The reader of the log may be slow or may have stopped reading; jobs must not wait for it. When the pipe is full, lines
are buffered up to a limit and a thread writes them when there is room again. Above the limit lines are dropped, and the
log contains a line with their number.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import threading
from collections.abc import Callable
from typing import NamedTuple

from holdfast.clock import Clock

BUFFER_BYTES_MAX = 8 * 2**20
POLL_SECONDS = 0.5
# Several Holdfast processes write to one pipe. A write of at most this size is atomic.
ATOMIC_BYTES = select.PIPE_BUF


class LogWriter:
    def __init__(self, descriptor: int, dropped: Callable[[int], bytes]) -> None:
        """`dropped` formats the line that says how many lines were dropped."""
        self._output = _output_to(descriptor)
        self._dropped_line = dropped
        self._buffer = bytearray()
        self._dropped = 0  # since the last line about it
        self.dropped = 0  # in all
        self._forked()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """After a fork: the parent writes what was buffered, and its lock may be held forever here."""
        self._lock = threading.RLock()  # reentrant: garbage collection during a write may log
        self._buffer.clear()
        self._busy = False

    def put(self, data: bytes) -> None:
        """Whole lines. From any thread."""
        with self._lock:
            if self._busy or self._buffer:
                self._append(data)
                return
            self._busy = True
            try:
                done = self._write(data)
            finally:
                self._busy = False
            self._buffer[:0] = data[done:]  # before the lines that arrived during the write
            if self._buffer and not self._write_buffer():
                threading.Thread(target=self._drain, name="holdfast-log", daemon=True).start()

    def flush(self, seconds: float) -> None:
        """Wait for the reader, at most so many seconds."""
        clock = Clock()
        until = clock.monotonic() + seconds
        while self._buffer and clock.monotonic() < until:
            self._wait(0.05)
            self._write_buffer()

    def close(self) -> None:
        """Later lines are dropped: the descriptor may belong to another file by then."""
        with self._lock:
            output, self._output = self._output, _Output(_refuse, -1, True, _nothing)
            output.close()

    def _append(self, data: bytes) -> None:
        """After a drop nothing more is buffered until the line about it is written, so that it stands at the gap."""
        if not self._dropped and len(self._buffer) + len(data) <= BUFFER_BYTES_MAX:
            self._buffer += data
        else:
            self._drop(data)

    def _drop(self, data: bytes | bytearray) -> None:
        lines = data.count(b"\n")
        self._dropped += lines
        self.dropped += lines

    def _drain(self) -> None:
        while not self._write_buffer():
            self._wait(POLL_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Until the descriptor is writable."""
        with contextlib.suppress(OSError, ValueError):
            select.select([], [self._output.descriptor], [], seconds)

    def _write_buffer(self) -> bool:
        """True when the buffer is empty."""
        with self._lock:
            del self._buffer[: self._write(self._buffer)]
            if not self._buffer and self._dropped:
                self._buffer += self._dropped_line(self._dropped)
                self._dropped = 0
                del self._buffer[: self._write(self._buffer)]
            return not self._buffer

    def _write(self, data: bytes | bytearray) -> int:
        """How many bytes were written or dropped."""
        done = 0
        while done < len(data):
            try:
                done += self._output.write(bytes(data[done : self._end(data, done)]))
            except BlockingIOError:
                break
            except OSError:  # broken pipe or full disk: no reason for a worker to exit
                self._drop(data[done:])
                return len(data)
        return done

    def _end(self, data: bytes | bytearray, begin: int) -> int:
        """The end of the next write: as many whole lines as are atomic, at least one."""
        if self._output.whole or len(data) - begin <= ATOMIC_BYTES:
            return len(data)
        end = data.rfind(b"\n", begin, begin + ATOMIC_BYTES)
        return 1 + (end if end >= 0 else data.find(b"\n", begin))


class _Output(NamedTuple):
    """How to write to a file descriptor without blocking."""

    write: Callable[[bytes], int]
    descriptor: int  # select() waits for it
    whole: bool  # everything in one write
    close: Callable[[], None]


def _output_to(descriptor: int) -> _Output:
    """Without setting O_NONBLOCK on it: other processes, such as the shell, share the descriptor."""
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return _Output(lambda data: os.write(descriptor, data), descriptor, True, _nothing)
    if stat.S_ISSOCK(kind):
        sock = socket.socket(fileno=os.dup(descriptor))
        return _Output(lambda data: sock.send(data, socket.MSG_DONTWAIT), sock.fileno(), False, sock.close)
    try:  # Linux: a separate open file description for this process
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        return _Output(lambda data: os.write(own, data), own, False, lambda: os.close(own))
    except OSError:
        return _Output(lambda data: _write_if_room(descriptor, data), descriptor, False, _nothing)


def _nothing() -> None: ...


def _refuse(_: bytes) -> int:
    raise BrokenPipeError


def _write_if_room(descriptor: int, data: bytes) -> int:
    """Fallback: another process may fill the pipe between the check and the write."""
    if not select.select([], [descriptor], [], 0)[1]:
        raise BlockingIOError
    return os.write(descriptor, data)
