"""Wake-ups between the processes that share a SQLite file: each waiting process has a datagram socket beside the file.

Polling finds the rest: for a process that is too busy to read, is on another host, or could not create its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from holdfast.ids import Ids

HINTS, RESULTS = "hints", "results"  # what a socket is for: the suffix of its name
PAUSE_SECONDS = 0.005  # between two wake-ups by one sender: those in between are batched
PAUSE_LONE_SECONDS = 0.002  # after one for a single commit: one follows the other, as when a caller waits for each
DATAGRAM_BYTES_MAX = 8000
DATAGRAMS_MAX = 64  # read in one turn of the event loop
BACKLOG = 10  # datagrams that wait: Linux may have dropped more of them
ADDRESS_BYTES_MAX = 100  # Linux allows 108 bytes, macOS 104
_DESCRIPTORS = "/proc/self/fd"  # a shorter address for a long path, on Linux

log = logging.getLogger(__name__)


class WakeDirectory:
    """The sockets of the processes that wait, in a private directory beside the database."""

    def __init__(self, database: Path) -> None:
        database = database.resolve()
        self.path = database.with_name(f"{database.name}.wake")

    def send(self, kind: str, datagrams: Iterable[bytes]) -> None:
        """To every process that waits for this kind. Never blocks."""
        datagrams = list(datagrams)
        with contextlib.suppress(OSError), self._open() as directory:
            names = [name for name in os.listdir(directory) if _is_socket(name, kind)]
            if not names:
                return
            with _new_socket() as sender:
                for name in names:
                    self._send_to(sender, directory, name, datagrams)

    def bind(self, kind: str, ids: Ids) -> tuple[socket.socket, str]:
        """A new socket and its name. Bound, then renamed: under its final name it is never without its process."""
        name = f"{os.getpid()}-{ids.bits(32):08x}.{kind}"
        receiver = _new_socket()
        try:
            with self._create() as directory:
                self._remove_stale(directory)
                receiver.bind(self._address(directory, f".{name}"))
                os.rename(f".{name}", name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            receiver.close()
            raise
        return receiver, name

    def remove(self, name: str) -> None:
        """The last process removes the directory."""
        (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _send_to(self, sender: socket.socket, directory: int, name: str, datagrams: Iterable[bytes]) -> None:
        try:
            for datagram in datagrams:
                sender.sendto(datagram, self._address(directory, name))
        except ConnectionRefusedError:  # its process was killed
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
        except OSError:  # it has just closed the socket, or has not read earlier datagrams yet
            return

    def _remove_stale(self, directory: int) -> None:
        """The sockets of processes that were killed."""
        with _new_socket() as probe:
            for name in os.listdir(directory):
                if _is_socket(name, HINTS) or _is_socket(name, RESULTS):
                    try:
                        probe.connect(self._address(directory, name))
                    except ConnectionRefusedError:
                        os.unlink(name, dir_fd=directory)
                    except OSError:
                        continue

    def _address(self, directory: int, name: str) -> str:
        path = str(self.path / name)
        return path if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX else f"{_DESCRIPTORS}/{directory}/{name}"

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield directory
        finally:
            os.close(directory)

    @contextlib.contextmanager
    def _create(self) -> Iterator[int]:
        self.path.mkdir(mode=0o700, exist_ok=True)
        with self._open() as directory:
            yield directory


class WakeSocket:
    """The socket of one waiter of this process; `receive` gets each datagram in the running event loop, and an empty
    one if others may have been dropped.

    Without a socket (a directory that cannot be written, a system without them) it receives nothing.
    """

    def __init__(self, directory: WakeDirectory, kind: str, ids: Ids, receive: Callable[[bytes], None]) -> None:
        self._directory, self._receive = directory, receive
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        for last in (False, False, True):
            try:
                self._socket, self._name = directory.bind(kind, ids)
                self._loop.add_reader(self._socket, self._read)
                return
            except (OSError, NotImplementedError, AttributeError) as error:
                if last or not isinstance(error, FileNotFoundError):  # another process has just removed the directory
                    log.info("no wake-up socket beside the database; polling instead: %s", error)
                    return

    @property
    def open(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        if self._socket is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
            self._directory.remove(self._name)
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        datagrams: list[bytes] = []
        with contextlib.suppress(OSError):  # there are no more
            while self._socket is not None and len(datagrams) < DATAGRAMS_MAX:
                datagrams.append(self._socket.recv(DATAGRAM_BYTES_MAX))
        if len(datagrams) >= BACKLOG:
            datagrams.append(b"")
        for datagram in datagrams:
            self._receive(datagram)


class WakeSender:
    """Sends wake-ups of one kind after commits: the first at once, later ones batched. For use in one event loop."""

    def __init__(self, directory: WakeDirectory, kind: str, encode: Callable[[set[str]], list[bytes]]) -> None:
        self._directory, self._kind, self._encode = directory, kind, encode
        self._waiting: set[str] = set()
        self._commits = 0  # of which it tells
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __call__(self, items: Collection[str]) -> None:
        if self._closed:
            return
        self._waiting.update(items)
        self._commits += 1
        if self._timer is None:
            self._send()

    async def close(self) -> None:
        """Send what is pending; drop what comes later."""
        self.drop()
        self._send_waiting()

    def drop(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        self._timer = None
        if self._waiting:
            pause, self._commits = PAUSE_SECONDS if self._commits > 1 else PAUSE_LONE_SECONDS, 0
            self._send_waiting()
            self._timer = asyncio.get_running_loop().call_later(pause, self._send)

    def _send_waiting(self) -> None:
        items, self._waiting = self._waiting, set()
        if items:
            self._directory.send(self._kind, self._encode(items))


def _is_socket(name: str, kind: str) -> bool:
    return name.endswith(f".{kind}") and not name.startswith(".")


def _new_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
