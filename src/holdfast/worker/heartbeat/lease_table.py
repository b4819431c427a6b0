"""The leases that a worker process holds, in shared memory that its heartbeat process reads even if the worker blocks.

Only the worker writes entries, only the heartbeat process writes when each was renewed, and there are no locks. A torn
read does no harm: an entry is marked used last and unused first, a reader takes only what two copies agree on, and a
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

SIZE = 4096
FULL = -1

_HEADER = Struct("@qqqddqqq")  # the numbers of a TableHeader, in its order, but for `size` in front
_NUMBER, _TIME, _TIMES = Struct("@q"), Struct("@d"), Struct("@dd")
_TOP, _TICK, _POLLED, _STATE = 16, 24, 32, Struct("@qq")
_BUSY, _STOPPING = 40, 56
_FLAGS = 64
_ENTRY = Struct("@36s36sddddqd")  # job id, token, and the numbers of a TableEntry, in its order
_ENTRY_BYTES = _ENTRY.size
_SINCE, _RENEWED, _DEADLINE, _EXECUTOR = 72, 80, 96, 104


class TableHeader(NamedTuple):
    """`tick`: when the event loop last ran. `polled`: when the worker last claimed, or had no free slot."""

    worker: int
    top: int
    tick: float
    polled: float
    busy: int
    slots: int
    stopping: int


class TableEntry(NamedTuple):
    """`deadline`: when the attempt times out, 0 for never. `executor`: the process that runs it, 0 for the worker.
    `heartbeat_seconds`: the heartbeat interval of its policy, 0 for none."""

    slot: int
    held: HeldLease
    since: float
    renewed: float
    lease_seconds: float
    deadline: float
    executor: int
    heartbeat_seconds: float


class LeaseTable:
    """Times are monotonic seconds, which are the same in all processes of a machine. Only one thread writes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, 0)
        self._size: int = _NUMBER.unpack_from(self._memory)[0]
        self._entries = _FLAGS + self._size
        self._free = list(range(self._size - 1, -1, -1))
        self._top = 0

    @classmethod
    def create(cls, size: int = SIZE) -> LeaseTable:
        """For this process. The memory has no name: only a process that inherits the descriptor can map it."""
        size += -size % 8  # the entries stay aligned
        fd = _memory_file()
        os.ftruncate(fd, _FLAGS + size + size * _ENTRY_BYTES)
        os.pwrite(fd, _HEADER.pack(size, os.getpid(), 0, monotonic(), monotonic(), 0, 0, 0), 0)
        return cls(fd)

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)

    # -- the worker writes ------------------------------------------------------------------------------------

    def put(
        self, held: HeldLease | Lease, lease_seconds: float, deadline: float = 0.0, *, heartbeat_seconds: float = 0.0
    ) -> int:
        """From now on the heartbeat process renews it. Returns its slot, or FULL."""
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
            heartbeat_seconds,
        )
        self._memory[_FLAGS + slot] = 1
        if slot >= self._top:
            self._top = slot + 1
            _NUMBER.pack_into(self._memory, _TOP, self._top)
        return slot

    def executor(self, slot: int, pid: int) -> None:
        """This process runs the job: the lease is not renewed while it is dead or stopped."""
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
        """When the lease was claimed or last renewed: the time at which that heartbeat was sent."""
        times: tuple[float, float] = _TIMES.unpack_from(self._memory, self._entries + slot * _ENTRY_BYTES + _SINCE)
        return max(times)

    def tick(self) -> None:
        """The event loop runs."""
        _TIME.pack_into(self._memory, _TICK, monotonic())

    def polled(self) -> None:
        """The worker claimed successfully, or has no free slot to claim for."""
        _TIME.pack_into(self._memory, _POLLED, monotonic())

    def show(self, liveness: Liveness, slots: int) -> None:
        _STATE.pack_into(self._memory, _BUSY, liveness is Liveness.BUSY, slots)

    def stop(self) -> None:
        """The worker shuts down: the watchdog no longer expects claims."""
        _NUMBER.pack_into(self._memory, _STOPPING, 1)

    # -- the heartbeat process reads, and writes what it renewed ----------------------------------------------

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
        """A lease that took this slot meanwhile came after `sent`, so `valid_since` stays right."""
        _TIME.pack_into(self._memory, self._entries + slot * _ENTRY_BYTES + _RENEWED, sent)


def _memory_file() -> int:
    """Closed on exec, unless it is passed on explicitly."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast-lease-table")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
