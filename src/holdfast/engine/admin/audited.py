"""What operators do, told as it is done: the deed and its line in the audit, both or neither."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.engine.admin import audit as _audit
from holdfast.engine.context import Rules
from holdfast.store import PostgresStore, SqliteStore, Tx

_Answer = TypeVar("_Answer")


class Audited:
    store: PostgresStore | SqliteStore
    rules: Rules

    async def audited(
        self, work: Callable[[Tx], Awaitable[_Answer]], tell: Callable[[_Answer], _audit.Deed]
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
        return await self.audited(work, lambda answer: _audit.Deed(by, *tell(answer)))

    async def audit(self, *, before: int | None = None, limit: int = 50) -> _audit.AuditPage:
        return await self.store.read(lambda tx: _audit.page(tx, before=before, limit=limit))

    async def verify_audit(self, *, seq: int | None = None, digest: str | None = None) -> _audit.Verdict:
        return await self.store.read(lambda tx: _audit.verify(tx, seq=seq, digest=digest))
