"""Missing extensions: jobs need them, but no live process has them. Until one has, these jobs do not run."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.store import Tx, q

MISSING_SECONDS = 60.0  # a process records its extensions four times as often
COUNTED_MAX = 10_000


async def stale(tx: Tx) -> list[str]:
    """The extensions that no live process has, whether a job needs them or not."""
    return [row["name"] for row in await tx.all(q.stale_extensions, seconds=MISSING_SECONDS)]


async def needed(tx: Tx) -> list[str]:
    """The missing extensions with hooks on a job type; meanwhile finished jobs of that type are not deleted."""
    types = [msgspec.json.decode(row["needs"]) for row in await tx.all(q.job_types) if row["needs"] is not None]
    return [name for name in await stale(tx) if any(name in needs for needs in types)]


async def missing(tx: Tx) -> dict[str, int]:
    """The missing extensions, and how many unfinished jobs need each, counted up to `COUNTED_MAX`."""
    found = {}
    for name in await stale(tx):
        [row] = await tx.all(q.jobs_that_need, extension=name, limit=COUNTED_MAX)
        if row["jobs"]:
            found[name] = row["jobs"]
    return found


def sentences(missing: Mapping[str, int]) -> list[str]:
    """One sentence for each."""
    return [f"no live process has extension {name}, which {_many(jobs)}" for name, jobs in missing.items()]


def _many(jobs: int) -> str:
    if jobs == 1:
        return "1 job needs"
    return f"{jobs:,}{' or more' if jobs >= COUNTED_MAX else ''} jobs need"
