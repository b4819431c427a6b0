"""Lines get out at once, whole and in order; whoever does not read them stops nobody."""

import fcntl
import os
import pty
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.observe import log_writer as lines_module
from holdfast.observe.log_writer import ATOMIC_BYTES, LogWriter

PROMPT_SECONDS = 60  # far more than it takes, far less than for ever
KIB = 1024

Ends = tuple[int, int]  # to read from, to write to


def number(line: int, width: int = 100) -> bytes:
    return f"{line:06d} ".encode().ljust(width - 1, b".") + b"\n"


def dropped(count: int) -> bytes:
    return b"%d dropped\n" % count


def read_all(descriptor: int, until: Callable[[bytes], bool]) -> bytes:
    """As somebody who begins to read at last."""
    seen = b""
    give_up = time.monotonic() + PROMPT_SECONDS
    while not until(seen) and time.monotonic() < give_up:
        seen += os.read(descriptor, 64 * KIB)
    return seen.replace(b"\r\n", b"\n")  # as a terminal makes them


def a_pipe() -> Ends:
    return os.pipe()


def a_socket() -> Ends:
    ours, its = socket.socketpair()
    return ours.detach(), its.detach()


@pytest.fixture(params=[a_pipe, a_socket, pty.openpty], ids=["pipe", "socket", "terminal"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    ours, its = request.param()
    yield ours, its
    os.close(ours)
    os.close(its)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(lines_module, "BUFFER_BYTES_MAX", 64 * KIB)
    return 64 * KIB


def test_unread_lines_are_buffered_until_the_pipe_is_read(ends: Ends) -> None:
    ours, its = ends
    written = LogWriter(its, dropped)
    for line in range(20_000):
        written.put(number(line))  # one that waited for a reader would wait for ever
    seen = read_all(ours, lambda seen: number(19_999)[:7] in seen and seen.endswith(b"\n"))
    assert seen == b"".join(map(number, range(20_000)))
    assert written.dropped == 0


def test_lines_beyond_the_buffer_are_dropped_and_counted(ends: Ends, small: int) -> None:
    ours, its = ends
    written = LogWriter(its, dropped)
    for line in range(20_000):
        written.put(number(line))
    assert len(written._buffer) <= small
    seen = read_all(ours, lambda seen: b"dropped" in seen and seen.endswith(b"\n")).splitlines(keepends=True)
    assert written.dropped > 0
    gap = seen.index(dropped(written.dropped))
    assert seen[:gap] == [*map(number, range(gap))], "it is told where it is"
    assert gap + written.dropped == 20_000 or seen[gap + 1] == number(gap + written.dropped), "and then it goes on"


def test_a_closed_pipe_raises_no_error() -> None:
    ours, its = os.pipe()
    written = LogWriter(its, dropped)
    os.close(ours)
    written.put(number(1) * 3)
    os.close(its)
    assert written.dropped == 3


def test_lines_after_close_are_dropped() -> None:
    ours, its = os.pipe()
    written = LogWriter(its, dropped)
    written.close()
    written.put(number(1))
    os.close(its)
    assert os.read(ours, 10) == b""
    os.close(ours)


def test_a_file_gets_all_lines(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as file:
        LogWriter(file.fileno(), dropped).put(number(1) * 10_000)
    assert (tmp_path / "log").read_bytes() == number(1) * 10_000


def test_the_flags_of_the_descriptor_are_unchanged(ends: Ends) -> None:
    _, its = ends
    before = fcntl.fcntl(its, fcntl.F_GETFL)
    LogWriter(its, dropped).put(number(1))
    assert fcntl.fcntl(its, fcntl.F_GETFL) == before


def test_a_pipe_that_cannot_be_reopened_is_polled_before_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, whose pipes are another user's."""

    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(lines_module.os, "open", refused)
    ours, its = os.pipe()
    written = LogWriter(its, dropped)
    for line in range(5000):
        written.put(number(line))
    seen = read_all(ours, lambda seen: seen.endswith(number(4999)))
    os.close(its)
    os.close(ours)
    assert seen == b"".join(map(number, range(5000)))


WRITER = """
import sys
from holdfast.observe.log_writer import LogWriter
lines = LogWriter(2, lambda count: b"dropped")
for number in range(300):
    lines.put((sys.argv[1] * 299 + "\\n").encode() * 20)
lines.flush(20)
"""


def test_lines_of_several_processes_on_one_pipe_are_not_interleaved() -> None:
    ours, its = os.pipe()
    programs = [subprocess.Popen([sys.executable, "-c", WRITER, name], stderr=its) for name in "abc"]
    os.close(its)
    seen = b""
    while piece := os.read(ours, 10_000):
        seen += piece
    os.close(ours)
    assert [program.wait(PROMPT_SECONDS) for program in programs] == [0, 0, 0]
    assert sorted(seen.split()) == sorted(name * 299 for name in (b"a", b"b", b"c") for _ in range(6000))


def test_a_line_longer_than_pipe_buf_arrives_complete() -> None:
    ours, its = os.pipe()
    written = LogWriter(its, dropped)
    long = [number(line, width=ATOMIC_BYTES * 5 + line) for line in range(30)]
    written.put(b"".join(long))
    seen = read_all(ours, lambda seen: seen.count(b"\n") == len(long))
    assert seen == b"".join(long)
    os.close(its)
    os.close(ours)


def test_lines_of_several_threads_are_not_interleaved(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as file:
        written = LogWriter(file.fileno(), dropped)

        def write(name: bytes) -> None:
            for _ in range(500):
                written.put(name * 50 + b"\n")

        threads = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = (tmp_path / "log").read_bytes().split()
    assert sorted(seen) == sorted(name * 50 for name in (b"a", b"b", b"c") for _ in range(500))


def test_buffered_lines_are_not_written_again_by_a_forked_child() -> None:
    ours, its = os.pipe()
    written = LogWriter(its, dropped)
    written.put(number(0) * 2000)
    if not (child := os.fork()):
        written.put(number(1))
        written.flush(1)
        os._exit(0)
    seen = read_all(ours, lambda seen: seen.count(b"\n") == 2001)
    assert os.waitpid(child, 0)[1] == 0
    written.close()
    os.close(its)
    assert sorted((seen + os.read(ours, 64 * KIB)).splitlines(keepends=True)) == [number(0)] * 2000 + [number(1)]
    os.close(ours)
