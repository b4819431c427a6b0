"""Removes the jobs of `holdfast bench`, and no others."""

from __future__ import annotations

from holdfast.cli.bench.app import NAME
from holdfast.engine import Engine
from holdfast.lifecycle import Actor
from holdfast.store import Tx, q

PAGE = 1000


async def clear_waiting(engine: Engine) -> None:
    """Cancel waiting bench jobs, including those of an earlier run that was killed."""

    async def work(tx: Tx) -> int:
        ids = [row["id"] for row in await tx.all(q.bench_waiting, type=NAME, limit=PAGE)]
        if ids:
            await tx.all(q.cancel_waiting, ids=ids, reason="bench_ended", actor=Actor.CLIENT)
        return len(ids)

    while await engine.store.write(work) == PAGE:
        continue


async def remove_finished(engine: Engine, first: str) -> int:
    """Delete the bench jobs from id `first` on, with their history; returns their number."""

    async def work(tx: Tx) -> int:
        ids = [row["id"] for row in await tx.all(q.bench_finished, first=first, type=NAME, limit=PAGE)]
        for query in (q.prune_jobs, q.prune_events, q.prune_attempts, q.prune_parts) if ids else ():
            await tx.all(query, ids=ids)
        return len(ids)

    removed = page = await engine.store.write(work)
    while page == PAGE:
        page = await engine.store.write(work)
        removed += page
    return removed
