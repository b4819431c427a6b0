"""Whether the cost of a job grows with what the database has seen or holds.

    python -m benchmarks.growth [--store postgres] [--only lanes,flood] [--scale 0.01] [--quick]

At full scale it takes hours and tens of gigabytes; it checks the free disk first. Exit status 1: a figure was not
reached, or there is too little room.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.databases import Host, host
from benchmarks.growth.drains import many_workers, one_lane
from benchmarks.growth.fairness import beside_a_flood
from benchmarks.growth.figures import Figure, Sizes
from benchmarks.growth.lanes import limit_keys, many_lanes
from benchmarks.growth.retention import in_and_out
from benchmarks.growth.snapshots import pinned_snapshot
from benchmarks.report import arguments, chosen_stores, print_table, write_results

QUICK_SCALE = 0.002
SERVER = ("max_connections=1000",)
TUNING = ("max_wal_size = '4GB'", "autovacuum = on")  # otherwise as installed: growth shows where nothing is tuned
JOB_BYTES = 6_000  # with its history and its dead rows, if nothing vacuums
LOG_BYTES = 8 << 30  # WAL at its largest, and what a checkpoint has not removed yet

MEASURED: dict[str, Callable[[str, Host, Sizes], Awaitable[list[Figure]]]] = {
    "drain": one_lane,
    "snapshot": pinned_snapshot,
    "workers": many_workers,
    "retention": in_and_out,
    "lanes": many_lanes,
    "limits": limit_keys,
    "flood": beside_a_flood,
}


def needed_bytes(sizes: Sizes) -> int:
    """Databases are dropped one by one, so the largest counts; the jobs of `through` are pruned as they come."""
    jobs = max(sizes.drained, sizes.flood, sizes.by_workers, int(sizes.pinned_seconds * sizes.paced), sizes.lanes)
    whole = Sizes()
    return jobs * JOB_BYTES + LOG_BYTES * min(jobs, whole.drained) // whole.drained


def room(sizes: Sizes, place: Path) -> tuple[bool, str]:
    needed, free = needed_bytes(sizes), shutil.disk_usage(place).free
    told = f"It needs {needed / 1e9:.1f} GB in {place}, where {free / 1e9:.1f} GB are free"
    return free >= needed, told


async def _tried(name: str, store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    """Hours of figures must not be lost with one of them."""
    try:
        return await MEASURED[name](store, machine, sizes)
    except Exception as error:
        return [Figure(f"{name}: FAILED, {error}", None, details={"error": str(error)})]


async def measure(options: argparse.Namespace, sizes: Sizes) -> bool:
    before = load.look()
    stores: dict[str, Any] = {}
    reached = True
    for store in chosen_stores(options):
        found: list[Figure] = []
        with host(store, settings=SERVER, tuning=TUNING) as machine:
            for name in options.only or MEASURED:
                found += await _tried(name, store, machine, sizes)
            version = await machine.version()
        print_table(version, ["", "is", "target", ""], [figure.row() for figure in found])
        stores[store] = [figure.as_json() for figure in found]
        reached = reached and all(figure.met is not False and "error" not in figure.details for figure in found)
    print(f"\n{load.told(before)}")
    write_results(options.results, "growth", quick=options.quick, stores=stores, scale=options.scale, load=before)
    return reached


def main(words: list[str] | None = None) -> int:
    parser = arguments(__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", type=_names, default=[], help=f"these of {', '.join(MEASURED)}")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the full sizes, such as 0.01")
    options = parser.parse_args(words)
    options.scale = QUICK_SCALE if options.quick else options.scale
    sizes = Sizes().scaled(options.scale)
    enough, told = room(sizes, Path(tempfile.gettempdir()))
    print(f"{told}.")
    if not enough:
        print("Too little: free some disk, set TMPDIR to another place, or give a smaller --scale.")
        return 1
    reached = asyncio.run(measure(options, sizes))
    return 0 if reached or options.quick else 1


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(names) - set(MEASURED):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} not among {', '.join(MEASURED)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
