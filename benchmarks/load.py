"""How quiet the machine is: figures from a busy one are worth less, and a report has to say so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

QUIET_SHARE = 0.1  # of the cores, used by others while nothing is measured
LOOK_SECONDS = 1.0


def look() -> dict[str, Any]:
    """The share of all cores in use now, by other programs and by the host of a virtual machine, and the load."""
    first = _ticks()
    time.sleep(LOOK_SECONDS)
    spent = [now - before for before, now in zip(first, _ticks(), strict=True)]
    total = sum(spent) or 1
    idle, stolen = spent[3] + spent[4], spent[7]
    return {
        "busy": round(1 - idle / total, 3),
        "stolen": round(stolen / total, 3),
        "load": [round(each, 2) for each in os.getloadavg()],
        "cores": os.cpu_count() or 1,
    }


def is_quiet(seen: dict[str, Any]) -> bool:
    return bool(seen["busy"] <= QUIET_SHARE)


def told(seen: dict[str, Any]) -> str:
    busy = f"others used {seen['busy']:.0%} of {seen['cores']} cores before the run"
    return f"{busy}, load {seen['load'][0]:g}: {'quiet' if is_quiet(seen) else 'NOT QUIET, figures are too high'}"


def _ticks() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all cores."""
    return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
