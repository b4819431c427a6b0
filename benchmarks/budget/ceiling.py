"""How many jobs a second all cores could drain if they did nothing else and never waited."""

from __future__ import annotations

import os
from typing import Any


def ceiling(worker_micros: float, store_micros: float, cores: int | None = None) -> dict[str, Any]:
    """From the CPU time of a job in one worker process and in the database beside it."""
    cores, each = cores or os.cpu_count() or 1, worker_micros + store_micros
    return {"cores": cores, "cpu_micros": round(each, 2), "jobs_per_second": round(cores * 1e6 / each) if each else 0}
