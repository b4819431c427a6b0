"""What operators manage: `engine.keys`, `.sessions`, `.workers`, `.queues`, `.job_limits`, `.extensions`, `.audit`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from holdfast.engine.admin import audit as _audit
from holdfast.engine.admin import extensions as _extensions
from holdfast.engine.admin import keys as _keys
from holdfast.engine.admin import limits as _limits
from holdfast.engine.admin import queues as _queues
from holdfast.engine.admin import server_secrets as _secrets
from holdfast.engine.admin import sessions as _sessions
from holdfast.engine.admin import workers as _workers
from holdfast.engine.component import Component, reading, writing
from holdfast.errors import HoldfastError
from holdfast.model import WorkerRecord
from holdfast.store import Row, Tx, q

_Answer = TypeVar("_Answer")

log = logging.getLogger(__name__)


class Keys(Component):
    """API keys: issue, rotate, revoke, look up."""

    create = writing(_keys.create)
    rotate = writing(_keys.rotate)
    revoke = writing(_keys.revoke)
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


class Workers(Component):
    """The registry of workers."""

    async def register(self, new: _workers.NewWorker | None = None, **fields: Any) -> WorkerRecord:
        return await self.store.write(
            lambda tx: _workers.register(tx, self.ctx, new or _workers.NewWorker(**fields)), alone=True
        )

    register_with_key = writing(_keys.register)
    revoke = writing(_keys.revoke_worker)
    enable = writing(_workers.enable)
    disable = writing(_workers.disable)

    get = reading(_workers.current)
    all = reading(_workers.every)

    async def holds(self) -> dict[str, int]:
        """How many jobs run under each worker that holds any."""
        return {worker: holding.jobs for worker, holding in (await self.store.read(_workers.holds)).items()}

    async def held_jobs(self, worker: str, *, limit: int = 100) -> list[Row]:
        """What a worker runs, the oldest first."""
        return await self.store.read(lambda tx: tx.all(q.jobs_of_worker, worker=worker, limit=limit))

    record_scope = writing(_workers.record_scope)


class Queues(Component):
    """Pausing and resuming queues."""

    pause = writing(_queues.pause)
    resume = writing(_queues.resume)
    all = reading(_queues.listed)


class ConfiguredLimits(Component):
    """Limits of concurrency and rate, and the weights of tenants."""

    all = reading(_limits.listed)
    set = writing(_limits.set_limit)
    change = writing(_limits.change_limit)
    reset = writing(_limits.reset_limit)
    open_full_lanes = writing(_limits.open_full_lanes)
    recount = writing(_limits.recount)
    prune_tokens = writing(_limits.prune_tokens)


class Extensions(Component):
    """Extensions that the database knows."""

    all = reading(_extensions.known)
    require_forgettable = reading(_extensions.require_forgettable)
    forget = writing(_extensions.forget)


class Audit(Component):
    """The audit log."""

    async def record(
        self, work: Callable[[Tx], Awaitable[_Answer]], entry_of: Callable[[_Answer], _audit.AuditedAction]
    ) -> _Answer:
        """Run `work` and append the entry that `entry_of` makes of its result, in one transaction."""

        async def both(tx: Tx) -> _Answer:
            answer = await work(tx)
            await _audit.record(tx, entry_of(answer))
            return answer

        try:
            return await self.store.write(both)
        except HoldfastError as refusal:
            await self.record_refusals([refusal])
            raise

    async def record_refusals(self, answers: Iterable[object]) -> None:
        """Append the entries of refused jobs, whose own transactions were rolled back. An error is only logged: it must
        not hide the refusal."""
        entries = [one.audit for one in answers if isinstance(one, HoldfastError) and one.audit is not None]
        if not entries:
            return
        try:
            await self.store.write(lambda tx: _audit.record_all(tx, entries))
        except Exception:
            log.exception("cannot write %d audit entries of refused jobs", len(entries))

    page = reading(_audit.page)
    verify = reading(_audit.verify)
