"""What a worker process holds, in memory that its keeper reads however busy the worker is.

The worker alone writes entries, the keeper alone writes when each was renewed, and nobody waits for a lock. A torn read
does not matter: an entry is marked used last and unused first, a reader takes only what two copies agree on, and a
token that was read wrong renews nothing.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from struct import Struct
from time import monotonic
from typing import NamedTuple

from holdfast.model import Lease, Liveness
from holdfast.model.reports import HeldLease

PLACES = 4096
FULL = -1

_HEADER = Struct("@qqqddqqq")  # the numbers of a TableHeader, in its order, but for `places` in front
_NUMBER, _TIME, _TIMES = Struct("@q"), Struct("@d"), Struct("@dd")
_TOP, _TICK, _POLLED, _STATE = 16, 24, 32, Struct("@qq")
_BUSY, _STOPPING = 40, 56
_FLAGS = 64
_ENTRY = Struct("@36s36sddddqd")  # job id, token, and the numbers of a TableEntry, in its order
_ENTRY_BYTES = _ENTRY.size
_SINCE, _RENEWED, _DEADLINE, _EXECUTOR = 72, 80, 96, 104


class TableHeader(NamedTuple):
    """`tick`: when the event loop last ran. `polled`: when the worker last could have found work."""

    worker: int
    top: int
    tick: float
    polled: float
    busy: int
    slots: int
    stopping: int


class TableEntry(NamedTuple):
    """`deadline`: when the attempt must be over, 0 for never. `executor`: its process, 0 for the worker's own.
    `beat_seconds`: how often its policy wants a heartbeat, 0 if it does not mind."""

    slot: int
    held: HeldLease
    since: float
    renewed: float
    lease_seconds: float
    deadline: float
    executor: int
    beat_seconds: float


class LeaseTable:
    """Times are monotonic seconds, which are the same in every process of a machine. One thread writes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, 0)
        self._places: int = _NUMBER.unpack_from(self._memory)[0]
        self._entries = _FLAGS + self._places
        self._free = list(range(self._places - 1, -1, -1))
        self._top = 0

    @classmethod
    def create(cls, places: int = PLACES) -> LeaseTable:
        """Of this process. The memory has no name: only who inherits the descriptor can see it."""
        places += -places % 8  # the entries stay aligned
        fd = _memory_file()
        os.ftruncate(fd, _FLAGS + places + places * _ENTRY_BYTES)
        os.pwrite(fd, _HEADER.pack(places, os.getpid(), 0, monotonic(), monotonic(), 0, 0, 0), 0)
        return cls(fd)

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)

    # -- the worker writes ------------------------------------------------------------------------------------

    def put(
        self, held: HeldLease | Lease, lease_seconds: float, deadline: float = 0.0, *, beat_seconds: float = 0.0
    ) -> int:
        """From now on the keeper renews it. The answer is its slot, or FULL."""
        if not self._free:
            return FULL
        slot = self._free.pop()
        _ENTRY.pack_into(
            self._memory,
            self._entries + slot * _ENTRY_BYTES,
            held.id.encode(),
            held.token.encode(),
            monotonic(),
            0.0,
            lease_seconds,
            deadline,
            0,
            beat_seconds,
        )
        self._memory[_FLAGS + slot] = 1
        if slot >= self._top:
            self._top = slot + 1
            _NUMBER.pack_into(self._memory, _TOP, self._top)
        return slot

    def executor(self, slot: int, pid: int) -> None:
        """This process runs it: while that is dead or stopped, the lease is not renewed."""
        _NUMBER.pack_into(self._memory, self._entries + slot * _ENTRY_BYTES + _EXECUTOR, pid)

    def deadline(self, slot: int, at: float) -> None:
        _TIME.pack_into(self._memory, self._entries + slot * _ENTRY_BYTES + _DEADLINE, at)

    def clear(self, slot: int) -> None:
        if self._memory[_FLAGS + slot]:
            self._memory[_FLAGS + slot] = 0
            self._free.append(slot)

    def free(self) -> int:
        return len(self._free)

    def valid_since(self, slot: int) -> float:
        """When the lease last began for certain: put here, or renewed by a beat that was sent at that time."""
        times: tuple[float, float] = _TIMES.unpack_from(self._memory, self._entries + slot * _ENTRY_BYTES + _SINCE)
        return max(times)

    def tick(self) -> None:
        """The event loop runs."""
        _TIME.pack_into(self._memory, _TICK, monotonic())

    def polled(self) -> None:
        """The worker claimed or looked with success, or had no need to because it has no slot free."""
        _TIME.pack_into(self._memory, _POLLED, monotonic())

    def show(self, liveness: Liveness, slots: int) -> None:
        _STATE.pack_into(self._memory, _BUSY, liveness is Liveness.BUSY, slots)

    def stop(self) -> None:
        """From now on the worker claims nothing, and that is no fault."""
        _NUMBER.pack_into(self._memory, _STOPPING, 1)

    # -- the keeper reads, and writes what it renewed ---------------------------------------------------------

    def header(self) -> TableHeader:
        return TableHeader._make(_HEADER.unpack_from(self._memory)[1:])

    def entries(self) -> list[TableEntry]:
        top = self.header().top
        end = self._entries + top * _ENTRY_BYTES
        memory, again = self._memory[:end], self._memory[:end]
        found, slot = [], memory.find(1, _FLAGS, _FLAGS + top)
        while slot >= 0:
            slot -= _FLAGS
            place = self._entries + slot * _ENTRY_BYTES
            if again[_FLAGS + slot] and memory[place : place + _ENTRY_BYTES] == again[place : place + _ENTRY_BYTES]:
                job_id, token, *numbers = _ENTRY.unpack_from(memory, place)
                found.append(TableEntry(slot, HeldLease(job_id.decode(), token.decode()), *numbers))
            slot = memory.find(1, _FLAGS + slot + 1, _FLAGS + top)
        return found

    def renewed(self, slot: int, sent: float) -> None:
        """If another lease has come to this slot meanwhile, it came after `sent`, and `valid_since` does not mind."""
        _TIME.pack_into(self._memory, self._entries + slot * _ENTRY_BYTES + _RENEWED, sent)


def _memory_file() -> int:
    """Closed on exec; whoever is to have it inherits it by name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast-lease-table")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
