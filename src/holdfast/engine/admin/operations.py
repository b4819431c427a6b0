"""`engine.keys`, `.sessions`, `.workers`, `.queues`, `.extensions` and `.audit`: what operators manage."""

from __future__ import annotations

from typing import Any

from holdfast.engine import claim as _claim
from holdfast.engine.admin import audit as _audit
from holdfast.engine.admin import extensions as _extensions
from holdfast.engine.admin import keys as _keys
from holdfast.engine.admin import queues as _queues
from holdfast.engine.admin import server_secrets as _secrets
from holdfast.engine.admin import sessions as _sessions
from holdfast.engine.admin import workers as _workers
from holdfast.engine.admin.audited import Audited
from holdfast.engine.component import Component, reading, writing
from holdfast.model import WorkerRecord
from holdfast.model.hint import Hint
from holdfast.model.key import Key, NewKey
from holdfast.store import Row, Tx, q


class Keys(Audited):
    """API keys: issue, rotate, revoke, look up."""

    async def create(self, new: NewKey, *, by: str | None = None) -> _keys.Issued:
        return await self._by(
            by, lambda tx: _keys.create(tx, self.ctx, new), lambda made: ("key.create", made.key.id, made.key.rights)
        )

    async def rotate(self, key_id: str, *, overlap_seconds: float = 86_400, by: str | None = None) -> _keys.Issued:
        """For the overlap both keys are good."""
        return await self._by(
            by,
            lambda tx: _keys.rotate(tx, self.ctx, key_id, overlap_seconds),
            lambda made: ("key.rotate", key_id, {"heir": made.key.id, "overlapSeconds": overlap_seconds}),
        )

    async def revoke(self, key_id: str, *, by: str | None = None) -> Key:
        return await self._by(by, lambda tx: _keys.revoke(tx, key_id), lambda _: ("key.revoke", key_id, {}))

    find_live = reading(_keys.find_live)
    get = reading(_keys.get)
    all = reading(_keys.listed)
    kinds = reading(_keys.kinds)
    mark_used = writing(_keys.mark_used, alone=True)
    server_secret = writing(_secrets.secret)


class Sessions(Component):
    """Browser sessions."""

    begin = writing(_sessions.begin)
    find_live = reading(_sessions.find_live)
    end = writing(_sessions.end)
    mark_used = writing(_sessions.mark_used, alone=True)
    prune = writing(_sessions.prune)


class Workers(Audited):
    """The registry of workers."""

    async def register(self, new: _workers.NewWorker | None = None, **fields: Any) -> WorkerRecord:
        return await self.store.write(
            lambda tx: _workers.register(tx, self.ctx, new or _workers.NewWorker(**fields)), alone=True
        )

    async def register_with_key(
        self, new: _workers.NewWorker, queues: list[str] | None = None, *, by: str | None = None
    ) -> tuple[WorkerRecord, str]:
        """Register a worker that uses HTTP, and issue its key, which may be limited to some queues."""
        return await self._by(
            by,
            lambda tx: _keys.register(tx, self.ctx, new, queues),
            lambda made: ("worker.register", made[0].id, {"name": new.name, "queues": queues}),
        )

    async def revoke(self, worker: str, *, by: str | None = None) -> list[Key]:
        """Revoke all its keys and disable it: it claims no more jobs, and its reports are rejected."""

        async def work(tx: Tx) -> list[Key]:
            taken = await _keys.revoke_of_worker(tx, worker)
            await _workers.set_enabled(tx, worker, enabled=False)
            return taken

        return await self._by(by, work, lambda taken: ("worker.revoke", worker, {"keys": [key.id for key in taken]}))

    async def enable(self, worker: str, *, by: str | None = None) -> WorkerRecord:
        return await self._by(
            by,
            lambda tx: _workers.set_enabled(tx, worker, enabled=True),
            lambda _: ("worker.enable", worker, {}),
        )

    async def disable(self, worker: str, *, by: str | None = None) -> WorkerRecord:
        return await self._by(
            by,
            lambda tx: _workers.set_enabled(tx, worker, enabled=False),
            lambda _: ("worker.disable", worker, {}),
        )

    async def get(self, worker: str) -> WorkerRecord:
        """As it is now: its leases say whether it is busy."""

        async def work(tx: Tx) -> WorkerRecord:
            return (await _workers.get(tx, worker)).with_holding((await _workers.holds(tx)).get(worker))

        return await self.store.read(work)

    async def all(self) -> list[WorkerRecord]:
        async def work(tx: Tx) -> list[WorkerRecord]:
            held = await _workers.holds(tx)
            found = [WorkerRecord.from_row(row) for row in await tx.all(q.workers)]
            return [worker.with_holding(held.get(worker.id)) for worker in found]

        return await self.store.read(work)

    async def holds(self) -> dict[str, int]:
        """How many jobs run under each worker that holds any."""
        return {worker: holding.jobs for worker, holding in (await self.store.read(_workers.holds)).items()}

    async def held_jobs(self, worker: str, *, limit: int = 100) -> list[Row]:
        """What a worker runs, the oldest first."""
        return await self.store.read(lambda tx: tx.all(q.jobs_of_worker, worker=worker, limit=limit))

    async def record_scope(self, worker: str, types: list[str] | None, queues: list[str] | None) -> None:
        """Record which queues and types the worker's claims over HTTP name."""
        _claim.check_claim(self.ctx, worker, None, queues, types, 1)
        await self.store.write(lambda tx: _workers.note_scope(tx, worker, types, queues))


class Queues(Component):
    """Pausing and resuming queues."""

    pause = writing(_queues.pause)

    async def resume(self, queue: str, *, tenant: str = "default") -> bool:
        resumed = await self.store.write(lambda tx: _queues.resume(tx, queue, tenant=tenant))
        self.ctx.hint([Hint(queue)])
        return resumed

    all = reading(_queues.listed)


class Extensions(Audited):
    """Extensions that the database knows."""

    all = reading(_extensions.known)
    require_forgettable = reading(_extensions.require_forgettable)

    async def forget(self, name: str, *, by: str | None = None) -> _extensions.Forgotten:
        """Remove the need for its hooks from job types and unfinished jobs, as when its app was renamed or removed."""
        batch = self.ctx.limits.sweep_batch
        return await self._by(
            by,
            lambda tx: _extensions.forget(tx, name, batch=batch),
            lambda done: ("extension.forget", name, {"jobTypes": done.job_types, "jobs": done.jobs}),
        )


class Audit(Audited):
    """The audit log."""

    record = Audited._audited

    page = reading(_audit.page)
    verify = reading(_audit.verify)
