"""Audited operations: the change and its entry in the audit log are committed together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.engine.admin import audit as _audit
from holdfast.engine.component import Component
from holdfast.store import Tx

_Answer = TypeVar("_Answer")


class Audited(Component):
    async def _audited(
        self, work: Callable[[Tx], Awaitable[_Answer]], entry_of: Callable[[_Answer], _audit.AuditedAction]
    ) -> _Answer:
        """Run `work` and append the entry that `entry_of` makes of its result, in one transaction."""

        async def both(tx: Tx) -> _Answer:
            answer = await work(tx)
            await _audit.record(tx, entry_of(answer))
            return answer

        return await self.store.write(both)

    async def _by(
        self,
        by: str | None,
        work: Callable[[Tx], Awaitable[_Answer]],
        entry_of: Callable[[_Answer], tuple[str, str, dict[str, Any]]],
    ) -> _Answer:
        """`entry_of` returns action, subject and detail. Without `by` there is no entry."""
        if by is None:
            return await self.store.write(work)
        return await self._audited(work, lambda answer: _audit.AuditedAction(by, *entry_of(answer)))
