"""The board: what one process writes, another reads, without a lock and without a torn entry that matters."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.model import Liveness
from holdfast.model.reports import Held
from holdfast.worker.heartbeat.lease_table import FULL, LeaseTable, TableEntry


def lease(number: int) -> Held:
    """Id and token agree, so that half of one and half of another would show."""
    return Held(f"{number:036d}", f"{number:036d}")


@pytest.fixture
def board():
    board = LeaseTable.create(64)
    yield board
    board.close()


def test_what_is_put_is_read_by_whoever_has_the_descriptor(board: LeaseTable) -> None:
    before = time.monotonic()
    slot = board.put(lease(7), 30.0, 99.5)
    board.executor(slot, 4711)
    reader = LeaseTable(os.dup(board.fd))
    [entry] = reader.entries()
    reader.close()
    assert (entry.slot, entry.held, entry.lease_seconds) == (slot, lease(7), 30.0)
    assert (entry.deadline, entry.executor, entry.renewed) == (99.5, 4711, 0.0)
    assert before <= entry.since <= time.monotonic()


def test_a_deadline_can_be_set_later(board: LeaseTable) -> None:
    slot = board.put(lease(7), 30.0)
    assert board.entries()[0].deadline == 0
    board.deadline(slot, 12.25)
    assert board.entries()[0].deadline == 12.25


def test_what_is_cleared_is_gone_and_its_slot_is_used_again(board: LeaseTable) -> None:
    first, second = board.put(lease(1), 30.0), board.put(lease(2), 30.0)
    board.clear(first)
    assert [entry.held for entry in board.entries()] == [lease(2)]
    assert board.put(lease(3), 30.0) == first
    assert {entry.held for entry in board.entries()} == {lease(2), lease(3)}
    assert second != first


def test_clearing_twice_frees_one_slot(board: LeaseTable) -> None:
    room = board.room()
    slot = board.put(lease(1), 30.0)
    board.clear(slot)
    board.clear(slot)
    assert board.room() == room
    assert board.put(lease(1), 30.0) != board.put(lease(2), 30.0)


def test_a_full_board_says_so_and_takes_more_when_there_is_room(board: LeaseTable) -> None:
    slots = [board.put(lease(number), 30.0) for number in range(board.room())]
    assert (board.room(), board.put(lease(99), 30.0), len(board.entries())) == (0, FULL, 64)
    board.clear(slots[17])
    assert (board.room(), board.put(lease(99), 30.0)) == (1, slots[17])


def test_the_header_tells_how_the_worker_is(board: LeaseTable) -> None:
    header = board.header()
    assert (header.worker, header.busy, header.slots, header.stopping) == (os.getpid(), 0, 0, 0)
    board.tick()
    board.polled()
    board.show(Liveness.BUSY, 12)
    board.stop()
    after = board.header()
    assert header.tick < after.tick <= time.monotonic()
    assert header.polled < after.polled <= time.monotonic()
    assert (after.busy, after.slots, after.stopping) == (1, 12, 1)


def test_a_lease_is_kept_since_it_was_put_or_last_renewed(board: LeaseTable) -> None:
    slot = board.put(lease(1), 30.0)
    put = board.kept_since(slot)
    board.renewed(slot, put + 10)
    assert board.kept_since(slot) == put + 10


def test_a_renewal_that_comes_too_late_for_its_lease_does_not_make_the_next_one_older(board: LeaseTable) -> None:
    slot = board.put(lease(1), 30.0)
    sent = time.monotonic()
    board.clear(slot)
    assert board.put(lease(2), 30.0) == slot
    put = board.kept_since(slot)
    board.renewed(slot, sent)
    assert board.kept_since(slot) == put >= sent


class Changing:
    """Memory that somebody writes to between one look at it and the next."""

    def __init__(self, memory: Any, change: Callable[[], None]) -> None:
        self._memory, self._change = memory, change

    def __getitem__(self, where: Any) -> Any:
        found = self._memory[where]
        self._change()
        return found


@pytest.mark.parametrize("next_lease", [None, lease(8)])
def test_what_changes_while_it_is_read_is_left_for_the_next_look(board: LeaseTable, next_lease: Held | None) -> None:
    slot = board.put(lease(7), 30.0)
    board.put(lease(9), 30.0)
    reader: Any = LeaseTable(os.dup(board.fd))

    def change() -> None:
        board.clear(slot)
        if next_lease:
            assert board.put(next_lease, 30.0) == slot

    header = reader.header()
    reader.header = lambda: header
    reader._memory = Changing(reader._memory, change)
    assert [entry.held for entry in reader.entries()] == [lease(9)]
    assert len(board.entries()) == (2 if next_lease else 1)


WRITER = """
import sys
from holdfast.model.reports import Held
from holdfast.worker.heartbeat.lease_table import LeaseTable
board, number = LeaseTable(int(sys.argv[1])), 0
while True:
    slots = [board.put(Held(f"{n:036d}", f"{n:036d}"), float(n), float(n)) for n in range(number, number + 32)]
    number += 32
    for slot in slots:
        board.clear(slot)
"""


def test_a_reader_beside_a_busy_writer_sees_no_entry_that_was_never_put(board: LeaseTable) -> None:
    program = [sys.executable, "-c", WRITER, str(board.fd)]
    seen: set[TableEntry] = set()
    give_up = time.monotonic() + 30
    with subprocess.Popen(program, pass_fds=(board.fd,)) as writer:
        try:
            while len(seen) < 20_000 and time.monotonic() < give_up:
                seen.update(board.entries())
        finally:
            writer.kill()
    assert len({entry.held for entry in seen}) > 100
    assert [entry for entry in seen if entry.held != lease(int(entry.lease_seconds))] == []
    assert [entry for entry in seen if entry.lease_seconds != entry.deadline] == []
