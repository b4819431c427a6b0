"""Lines on their way out of the process: written at once, in order, and never waited for.

Whoever reads them may be slow, or may have stopped reading; a job must not wait for that. So a pipe that is full is not
written to: what does not fit is kept up to a bound, and a thread takes it from there when there is room again. Beyond
the bound lines are dropped, and the log says how many.
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

KEPT_BYTES_MAX = 8 * 2**20
LOOK_SECONDS = 0.5
# Several processes of ours write to one pipe. What is no longer than this arrives whole, or not at all.
PIECE_BYTES = select.PIPE_BUF


class LogWriter:
    def __init__(self, descriptor: int, dropped: Callable[[int], bytes]) -> None:
        """`dropped` makes the line that says how many are missing."""
        self._way = _way(descriptor)
        self._tell_dropped = dropped
        self._kept = bytearray()
        self._dropped = 0  # since it was last said
        self.dropped = 0  # in all
        self._forked()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """What was kept is the parent's to write, and a lock that it held there nobody opens here."""
        self._lock = threading.RLock()  # a line may be about an object that is collected while we write another
        self._kept.clear()
        self._busy = False

    def put(self, data: bytes) -> None:
        """Whole lines. From any thread."""
        with self._lock:
            if self._busy or self._kept:
                self._keep(data)
                return
            self._busy = True
            try:
                done = self._push(data)
            finally:
                self._busy = False
            self._kept[:0] = data[done:]  # before what came while we wrote
            if self._kept and not self._push_kept():
                threading.Thread(target=self._drain, name="holdfast-log", daemon=True).start()

    def flush(self, seconds: float) -> None:
        """Wait for whoever reads, but not for ever."""
        clock = Clock()
        until = clock.monotonic() + seconds
        while self._kept and clock.monotonic() < until:
            self._wait(0.05)
            self._push_kept()

    def close(self) -> None:
        """What is put here later goes nowhere: the descriptor may be another's by then."""
        with self._lock:
            way, self._way = self._way, _Way(_refuse, -1, True, _nothing)
            way.close()

    def _keep(self, data: bytes) -> None:
        """After a gap nothing more is kept until the gap has been told: it is told where it is."""
        if not self._dropped and len(self._kept) + len(data) <= KEPT_BYTES_MAX:
            self._kept += data
        else:
            self._drop(data)

    def _drop(self, data: bytes | bytearray) -> None:
        lines = data.count(b"\n")
        self._dropped += lines
        self.dropped += lines

    def _drain(self) -> None:
        while not self._push_kept():
            self._wait(LOOK_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Until there is room."""
        with contextlib.suppress(OSError, ValueError):
            select.select([], [self._way.descriptor], [], seconds)

    def _push_kept(self) -> bool:
        """True when nothing is left."""
        with self._lock:
            del self._kept[: self._push(self._kept)]
            if not self._kept and self._dropped:
                self._kept += self._tell_dropped(self._dropped)
                self._dropped = 0
                del self._kept[: self._push(self._kept)]
            return not self._kept

    def _push(self, data: bytes | bytearray) -> int:
        """How much of it went out, or can go nowhere."""
        done = 0
        while done < len(data):
            try:
                done += self._way.write(bytes(data[done : self._end(data, done)]))
            except BlockingIOError:
                break
            except OSError:  # nobody reads any more, or the disk is full: no reason for a worker to end
                self._drop(data[done:])
                return len(data)
        return done

    def _end(self, data: bytes | bytearray, begin: int) -> int:
        """Of the next piece: as many whole lines as fit into one, but one at least."""
        if self._way.whole or len(data) - begin <= PIECE_BYTES:
            return len(data)
        end = data.rfind(b"\n", begin, begin + PIECE_BYTES)
        return 1 + (end if end >= 0 else data.find(b"\n", begin))


class _Way(NamedTuple):
    """How to write somewhere without waiting."""

    write: Callable[[bytes], int]
    descriptor: int  # to be waited for until there is room
    whole: bool  # whatever there is, in one piece
    close: Callable[[], None]


def _way(descriptor: int) -> _Way:
    """Not by making it non-blocking: others who have it, the shell among them, would find it so."""
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return _Way(lambda data: os.write(descriptor, data), descriptor, True, _nothing)
    if stat.S_ISSOCK(kind):
        sock = socket.socket(fileno=os.dup(descriptor))
        return _Way(lambda data: sock.send(data, socket.MSG_DONTWAIT), sock.fileno(), False, sock.close)
    try:  # Linux opens it once more, for us alone
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        return _Way(lambda data: os.write(own, data), own, False, lambda: os.close(own))
    except OSError:
        return _Way(lambda data: _write_if_room(descriptor, data), descriptor, False, _nothing)


def _nothing() -> None: ...


def _refuse(_: bytes) -> int:
    raise BrokenPipeError


def _write_if_room(descriptor: int, data: bytes) -> int:
    """Where there is no better way: a moment later another process may have taken the room."""
    if not select.select([], [descriptor], [], 0)[1]:
        raise BlockingIOError
    return os.write(descriptor, data)
