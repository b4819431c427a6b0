"""How long a queued generation will wait: its position, and an estimate from the last ones of its tenant."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.extend import Request, Tx
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.jobs import QUEUE
from holdfast.workloads.generation.views import GenerationView

COUNTED_MAX = 1000
RECENT, RECENT_SECONDS = 20, 3600

Span = tuple[datetime, datetime]


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
    eta = None if await request.is_paused(QUEUE) else eta_seconds(ahead + 1, [_span(run) for run in runs])
    return msgspec.structs.replace(view, queue_position=ahead + 1, eta_seconds=eta)


def _span(run: Any) -> Span:
    return run["started_at"], run["finished_at"]


def eta_seconds(position: int, runs: list[Span]) -> float | None:
    """The pace at which the last ones ended, while any of them ran."""
    if not runs:
        return None
    busy, until = timedelta(), min(began for began, _ in runs)
    for began, ended in sorted(runs):
        busy += max(ended - max(began, until), timedelta())
        until = max(until, ended)
    return round(position * busy.total_seconds() / len(runs), 1)
