"""What operators do, told as it is done: the deed and its line in the audit, both or neither."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.engine.admin import audit as _audit
from holdfast.engine.component import Component
from holdfast.store import Tx

_Answer = TypeVar("_Answer")


class Audited(Component):
    async def _audited(
        self, work: Callable[[Tx], Awaitable[_Answer]], tell: Callable[[_Answer], _audit.AuditedAction]
    ) -> _Answer:
        """What an operator does, and the line that tells of it: both or neither."""

        async def both(tx: Tx) -> _Answer:
            answer = await work(tx)
            await _audit.record(tx, tell(answer))
            return answer

        return await self.store.write(both)

    async def _by(
        self,
        by: str | None,
        work: Callable[[Tx], Awaitable[_Answer]],
        tell: Callable[[_Answer], tuple[str, str, dict[str, Any]]],
    ) -> _Answer:
        """`tell` says what was done, to whom, and more; where nobody in particular did it, nothing is told."""
        if by is None:
            return await self.store.write(work)
        return await self._audited(work, lambda answer: _audit.AuditedAction(by, *tell(answer)))
