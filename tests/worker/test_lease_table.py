"""The lease table: one process writes, another reads, without a lock and without torn entries."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.model import Liveness
from holdfast.model.reports import HeldLease
from holdfast.worker.heartbeat.lease_table import FULL, LeaseTable, TableEntry


def lease(number: int) -> HeldLease:
    """Id and token are equal, so that a torn entry is recognized."""
    return HeldLease(f"{number:036d}", f"{number:036d}")


@pytest.fixture
def table():
    table = LeaseTable.create(64)
    yield table
    table.close()


def test_an_entry_is_readable_through_a_duplicated_descriptor(table: LeaseTable) -> None:
    before = time.monotonic()
    slot = table.put(lease(7), 30.0, 99.5)
    table.executor(slot, 4711)
    reader = LeaseTable(os.dup(table.fd))
    [entry] = reader.entries()
    reader.close()
    assert (entry.slot, entry.held, entry.lease_seconds) == (slot, lease(7), 30.0)
    assert (entry.deadline, entry.executor, entry.renewed) == (99.5, 4711, 0.0)
    assert before <= entry.since <= time.monotonic()


def test_a_deadline_can_be_set_later(table: LeaseTable) -> None:
    slot = table.put(lease(7), 30.0)
    assert table.entries()[0].deadline == 0
    table.deadline(slot, 12.25)
    assert table.entries()[0].deadline == 12.25


def test_a_cleared_entry_is_gone_and_its_slot_is_reused(table: LeaseTable) -> None:
    first, second = table.put(lease(1), 30.0), table.put(lease(2), 30.0)
    table.clear(first)
    assert [entry.held for entry in table.entries()] == [lease(2)]
    assert table.put(lease(3), 30.0) == first
    assert {entry.held for entry in table.entries()} == {lease(2), lease(3)}
    assert second != first


def test_clearing_twice_frees_one_slot(table: LeaseTable) -> None:
    room = table.free()
    slot = table.put(lease(1), 30.0)
    table.clear(slot)
    table.clear(slot)
    assert table.free() == room
    assert table.put(lease(1), 30.0) != table.put(lease(2), 30.0)


def test_a_full_table_returns_full_and_accepts_entries_after_a_clear(table: LeaseTable) -> None:
    slots = [table.put(lease(number), 30.0) for number in range(table.free())]
    assert (table.free(), table.put(lease(99), 30.0), len(table.entries())) == (0, FULL, 64)
    table.clear(slots[17])
    assert (table.free(), table.put(lease(99), 30.0)) == (1, slots[17])


def test_the_header_contains_the_state_of_the_worker(table: LeaseTable) -> None:
    header = table.header()
    assert (header.worker, header.busy, header.slots, header.stopping) == (os.getpid(), 0, 0, 0)
    table.tick()
    table.polled()
    table.show(Liveness.BUSY, 12)
    table.stop()
    after = table.header()
    assert header.tick < after.tick <= time.monotonic()
    assert header.polled < after.polled <= time.monotonic()
    assert (after.busy, after.slots, after.stopping) == (1, 12, 1)


def test_valid_since_is_the_time_of_the_put_or_the_last_renewal(table: LeaseTable) -> None:
    slot = table.put(lease(1), 30.0)
    put = table.valid_since(slot)
    table.renewed(slot, put + 10)
    assert table.valid_since(slot) == put + 10


def test_a_late_renewal_does_not_change_the_next_lease_in_the_slot(table: LeaseTable) -> None:
    slot = table.put(lease(1), 30.0)
    sent = time.monotonic()
    table.clear(slot)
    assert table.put(lease(2), 30.0) == slot
    put = table.valid_since(slot)
    table.renewed(slot, sent)
    assert table.valid_since(slot) == put >= sent


class ChangingMemory:
    """Memory that is written to between two reads."""

    def __init__(self, memory: Any, change: Callable[[], None]) -> None:
        self._memory, self._change = memory, change

    def __getitem__(self, where: Any) -> Any:
        found = self._memory[where]
        self._change()
        return found


@pytest.mark.parametrize("next_lease", [None, lease(8)])
def test_an_entry_that_changes_during_a_read_is_skipped(table: LeaseTable, next_lease: HeldLease | None) -> None:
    slot = table.put(lease(7), 30.0)
    table.put(lease(9), 30.0)
    reader: Any = LeaseTable(os.dup(table.fd))

    def change() -> None:
        table.clear(slot)
        if next_lease:
            assert table.put(next_lease, 30.0) == slot

    header = reader.header()
    reader.header = lambda: header
    reader._memory = ChangingMemory(reader._memory, change)
    assert [entry.held for entry in reader.entries()] == [lease(9)]
    assert len(table.entries()) == (2 if next_lease else 1)


WRITER = """
import sys
from holdfast.model.reports import HeldLease
from holdfast.worker.heartbeat.lease_table import LeaseTable
table, number = LeaseTable(int(sys.argv[1])), 0
while True:
    slots = [table.put(HeldLease(f"{n:036d}", f"{n:036d}"), float(n), float(n)) for n in range(number, number + 32)]
    number += 32
    for slot in slots:
        table.clear(slot)
"""


def test_a_reader_beside_a_busy_writer_sees_no_torn_entry(table: LeaseTable) -> None:
    program = [sys.executable, "-c", WRITER, str(table.fd)]
    seen: set[TableEntry] = set()
    with subprocess.Popen(program, pass_fds=(table.fd,)) as writer:
        try:
            started = time.monotonic()
            while not table.entries() and time.monotonic() < started + 120:
                time.sleep(0.01)  # on a busy machine the writer takes a while to start
            give_up = time.monotonic() + 30
            while len(seen) < 20_000 and time.monotonic() < give_up:
                seen.update(table.entries())
        finally:
            writer.kill()
    assert len({entry.held for entry in seen}) > 100
    assert [entry for entry in seen if entry.held != lease(int(entry.lease_seconds))] == []
    assert [entry for entry in seen if entry.lease_seconds != entry.deadline] == []
