"""`engine.bench`: progress and cleanup of the jobs that `holdfast bench` creates, found by their type."""

from __future__ import annotations

from holdfast.engine.component import Component
from holdfast.lifecycle import Actor
from holdfast.store import Row, Tx, q
from holdfast.store.bench_baseline import BenchBaseline

PAGE = 1000


class Bench(Component):
    def baseline(self, payload: str) -> BenchBaseline:
        """The same work as hand-written SQL on this database."""
        return BenchBaseline(self.store, payload)

    async def unfinished(self, job_type: str) -> int:
        row = await self.store.read(lambda tx: tx.one(q.bench_left, type=job_type))
        return row["waiting"] + row["running"] if row else 0

    async def finished(self, job_type: str, first: str) -> Row | None:
        """Number, start and end of the finished jobs from id `first` on."""
        return await self.store.read(lambda tx: tx.one(q.bench_done, first=first, type=job_type))

    async def cancel_waiting(self, job_type: str) -> None:
        """Including those of an earlier run that was killed."""

        async def work(tx: Tx) -> int:
            ids = [row["id"] for row in await tx.all(q.bench_waiting, type=job_type, limit=PAGE)]
            if ids:
                await tx.all(q.cancel_waiting, ids=ids, reason="bench_ended", actor=Actor.CLIENT)
            return len(ids)

        while await self.store.write(work) == PAGE:
            continue

    async def remove_finished(self, job_type: str, first: str) -> int:
        """Delete the jobs from id `first` on, with their history; returns their number."""

        async def work(tx: Tx) -> int:
            ids = [row["id"] for row in await tx.all(q.bench_finished, first=first, type=job_type, limit=PAGE)]
            for query in (q.prune_jobs, q.prune_events, q.prune_parts) if ids else ():
                await tx.all(query, ids=ids)
            return len(ids)

        removed = page = await self.store.write(work)
        while page == PAGE:
            page = await self.store.write(work)
            removed += page
        return removed
