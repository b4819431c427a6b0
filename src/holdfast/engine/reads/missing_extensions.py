"""missing: extensions that jobs need and that no live process has. Nothing can move these jobs meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.store import Tx, q

MISSING_SECONDS = 60.0  # a process that has an extension says so four times as often
COUNTED_MAX = 10_000


async def stale(tx: Tx) -> list[str]:
    """Those that no live process has, whether a job needs them or not."""
    return [row["name"] for row in await tx.all(q.stale_extensions, seconds=MISSING_SECONDS)]


async def needed(tx: Tx) -> list[str]:
    """Those of them that a job type has hooks of: its finished jobs are not deleted meanwhile."""
    types = [msgspec.json.decode(row["needs"]) for row in await tx.all(q.job_types) if row["needs"] is not None]
    return [name for name in await stale(tx) if any(name in needs for needs in types)]


async def missing(tx: Tx) -> dict[str, int]:
    """How many jobs that have not ended need each of them, counted up to `COUNTED_MAX`."""
    found = {}
    for name in await stale(tx):
        [row] = await tx.all(q.jobs_that_need, extension=name, limit=COUNTED_MAX)
        if row["jobs"]:
            found[name] = row["jobs"]
    return found


def told(missing: Mapping[str, int]) -> list[str]:
    """A sentence for each."""
    return [f"no live process has extension {name}, which {_many(jobs)}" for name, jobs in missing.items()]


def _many(jobs: int) -> str:
    if jobs == 1:
        return "1 job needs"
    return f"{jobs:,}{' or more' if jobs >= COUNTED_MAX else ''} jobs need"
