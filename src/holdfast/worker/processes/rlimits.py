"""Resource limits of a job in a child process: memory and CPU time."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATM = Path("/proc/self/statm")  # Linux
_HAS_STATM = _STATM.exists()


@contextmanager
def limited(memory_bytes: int | None, cpu_seconds: float | None) -> Iterator[None]:
    """Too much memory raises MemoryError; too much CPU time kills the process by SIGXCPU."""
    soft: dict[int, int] = {}
    if memory_bytes is not None:
        soft[resource.RLIMIT_AS] = memory_bytes + _mapped_only()
    if cpu_seconds is not None:
        soft[resource.RLIMIT_CPU] = math.ceil(_cpu_seconds() + cpu_seconds)
    before = {kind: resource.getrlimit(kind) for kind in soft}
    try:
        for kind, wanted in soft.items():
            hard = before[kind][1]
            resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
        yield
    finally:
        for kind, both in before.items():
            resource.setrlimit(kind, both)


def rss_bytes() -> int:
    """The current one on Linux; elsewhere the peak."""
    return _pages()[1] if _HAS_STATM else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _mapped_only() -> int:
    """RLIMIT_AS counts address space: add what is mapped and not resident (stacks, arenas)."""
    if not _HAS_STATM:
        return 0
    mapped, resident = _pages()
    return mapped - resident


def _pages() -> tuple[int, int]:
    mapped, resident = _STATM.read_text().split()[:2]
    return int(mapped) * resource.getpagesize(), int(resident) * resource.getpagesize()


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
