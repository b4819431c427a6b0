"""`engine.job_types`: store what apps declare about their job types, and check new jobs against it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.engine import declare as _declare
from holdfast.engine import idempotency as _idempotency
from holdfast.engine.component import Component
from holdfast.engine.context import EngineContext
from holdfast.engine.registry import TYPES_FRESH_SECONDS
from holdfast.errors import Invalid
from holdfast.model import JobType, NewJob
from holdfast.store import PostgresStore, SqliteStore, Tx

_Answer = TypeVar("_Answer")
ADOPTING_SECONDS = 300.0  # transactions that began before the declaration have ended after this time
UNKNOWN_FRESH_SECONDS = 1.0  # an unknown type is looked up again after this time


class JobTypes(Component):
    """Job types; every process declares those of its app when it starts."""

    def __init__(self, store: PostgresStore | SqliteStore, ctx: EngineContext) -> None:
        super().__init__(store, ctx)
        self.contradictions: list[_declare.DeclarationConflict] = []  # of this process with other apps
        self._declared: dict[str, tuple[JobType, str | None]] = {}
        self._adopting_until = 0.0

    async def declare(
        self, *types: JobType, app: str | None = None, connection: Any = None
    ) -> list[_declare.DeclarationConflict]:
        """Store what an app declares about its job types; every process creates their jobs accordingly.

        Unchanged declarations are not written again. Returns the conflicts with other apps that have live workers;
        their declarations stay in force.
        """
        needs_of = self.ctx.hooks.needs_of
        types = tuple(msgspec.structs.replace(declared, needs=needs_of(declared.name)) for declared in types)
        for declared in types:
            declared.check()
            self.ctx.lifecycles[declared.lifecycle].policy.over(declared.policy)
        registry = self.ctx.registry

        async def work(tx: Tx) -> list[_declare.DeclarationConflict]:
            return await _declare.declare(tx, registry, types, app)

        found = await self._write_through(connection, work)
        self._declared |= {declared.name: (declared, app) for declared in types}
        registry.declare_again = self._declare_again
        registry.forget_types()
        self.contradictions += found
        self._adopting_until = self.ctx.clock.monotonic() + ADOPTING_SECONDS
        if connection is None:
            await self.adopt()
        return found

    @property
    def adopts(self) -> bool:
        """Whether open transactions may still commit jobs without the hooks that this process has declared."""
        in_time = self.ctx.clock.monotonic() < self._adopting_until
        return in_time and any(self.ctx.hooks.needs_of(name) for name in self._declared)

    async def adopt(self) -> None:
        """Apply the current hooks of each type to its unfinished jobs, which may have been created with others."""
        types, limit = sorted(self._declared), self.ctx.limits.sweep_batch
        steps = [partial(_declare.free, job_types=types, limit=limit)] if types else []
        hooked = [name for name in types if self.ctx.hooks.needs_of(name)]
        steps += [partial(_declare.adopt, job_type=name, limit=limit) for name in hooked]
        for step in steps:
            while await self.store.write(step) == limit:
                continue

    async def _declare_again(self, tx: Tx) -> None:
        for declared, app in self._declared.values():
            await _declare.declare(tx, self.ctx.registry, [declared], app)

    async def check(self, jobs: Sequence[NewJob], *, refuse_unknown: bool, within: Tx | None = None) -> None:
        """Raise if a job does not match the declaration of its type, or, with `refuse_unknown`, if there is none.

        A repeated request is not checked: it gets the job of the first request, whatever was declared since.
        `within`: the open transaction of the caller. A second connection could deadlock on an exhausted pool.
        """
        registry = self.ctx.registry
        if registry.types_age >= TYPES_FRESH_SECONDS:
            await self._within(registry.types, within)
        for place, job in enumerate(jobs):
            try:
                if refuse_unknown:
                    await self._check_known(job.type, within)
                registry.check_lifecycle(job)
                registry.check_payload(job)
            except Invalid as error:
                if not await self._is_repeat(job, within):
                    error.fields["place"] = place
                    raise

    async def _check_known(self, job_type: str, within: Tx | None) -> None:
        registry = self.ctx.registry
        if not registry.knows(job_type) and registry.types_age >= UNKNOWN_FRESH_SECONDS:
            registry.forget_types()  # another process may have just declared it
            await self._within(registry.types, within)
        registry.check_known(job_type)

    async def _is_repeat(self, job: NewJob, within: Tx | None) -> bool:
        if job.idempotency_key is None:
            return False
        return await self._within(lambda tx: _idempotency.is_repeat(tx, self.ctx, job), within)

    async def _within(self, work: Callable[[Tx], Awaitable[_Answer]], within: Tx | None) -> _Answer:
        return await (self.store.read(work) if within is None else work(within))
