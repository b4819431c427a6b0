"""How long a queued generation will wait: its position, and an estimate from the last ones of its tenant."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.extend import Request, Tx
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.views import GenerationView

COUNTED_MAX = 1000
RECENT, RECENT_SECONDS = 20, 3600


async def with_queue_position(request: Request, row: Any, view: GenerationView) -> GenerationView:
    if row["status"] != "queued":
        return view

    async def look(tx: Tx) -> tuple[int, list[Any]]:
        ahead = await tx.all(ext.q.queue_ahead, tenant=row["tenant"], id=row["id"], limit=COUNTED_MAX)
        runs = await tx.all(ext.q.recent_runs, tenant=row["tenant"], seconds=RECENT_SECONDS, limit=RECENT)
        return len(ahead), runs

    ahead, runs = await request.read(look)
    if ahead >= COUNTED_MAX:  # how many there are is not known
        return view
    eta = eta_seconds(ahead + 1, [(run["started_at"], run["finished_at"]) for run in runs])
    return msgspec.structs.replace(view, queue_position=ahead + 1, eta_seconds=eta)


def eta_seconds(position: int, runs: list[tuple[Any, Any]]) -> float | None:
    """The pace at which the last ones ended, by how long it took from the first start to the last end."""
    if not runs:
        return None
    took: float = (max(ended for _, ended in runs) - min(began for began, _ in runs)).total_seconds()
    return round(position * took / len(runs), 1)
