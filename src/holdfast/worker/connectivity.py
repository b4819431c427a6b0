"""A worker's source, and whether it answers at the moment: what only looks overdue because of an outage is not."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StoreError
from holdfast.model import Liveness, Part
from holdfast.model.reports import (
    Advanced,
    Beat,
    Complete,
    Fail,
    HeldLease,
    Progress,
    Rejection,
    Release,
    Withdrawal,
    Withdrawn,
)
from holdfast.worker.source import Answers, Claims, Source

SLOW_SECONDS = 0.5  # whoever has not answered by then is away

_T = TypeVar("_T")


class MonitoredSource:
    """Passes everything on. `away` while the last answer was an outage, or one is overdue."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._failing = False
        self._asked: dict[int, float] = {}  # when, for each question that is not answered yet
        self._number = 0

    @property
    def away(self) -> bool:
        if self._failing or not self._asked:
            return self._failing
        return self._clock.monotonic() - min(self._asked.values()) > SLOW_SECONDS

    async def _ask(self, answer: Awaitable[_T]) -> _T:
        self._number += 1
        number = self._number
        self._asked[number] = self._clock.monotonic()
        try:
            heard = await answer
        except StoreError:
            self._failing = True
            raise
        except HoldfastError:
            self._failing = False
            raise
        else:
            self._failing = False
            return heard
        finally:
            del self._asked[number]

    async def claim(self, limit: int, *, queues: list[str] | None, types: list[str] | None) -> Claims:
        return await self._ask(self._source.claim(limit, queues=queues, types=types))

    async def recover_claims(self, known: set[str]) -> Claims:
        return await self._ask(self._source.recover_claims(known))

    async def progress(self, reports: list[Progress]) -> Sequence[Advanced | HoldfastError]:
        return await self._ask(self._source.progress(reports))

    async def parts(self, job_id: str) -> list[Part]:
        return await self._ask(self._source.parts(job_id))

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        return await self._ask(self._source.withdraw(asked))

    async def complete(self, items: list[Complete]) -> Answers:
        return await self._ask(self._source.complete(items))

    async def fail(self, items: list[Fail]) -> Answers:
        return await self._ask(self._source.fail(items))

    async def release(self, items: list[Release]) -> Answers:
        return await self._ask(self._source.release(items))

    async def reject(self, items: list[Rejection]) -> Answers:
        return await self._ask(self._source.reject(items))

    async def wait(self, seconds: float, queues: list[str] | None = None, types: list[str] | None = None) -> bool:
        return await self._source.wait(seconds, queues, types)

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat:
        return await self._source.heartbeat(leases, liveness=liveness, slots=slots)

    async def stops(self, leases: list[HeldLease]) -> list[HeldLease]:
        return await self._source.stops(leases)

    async def close(self) -> None:
        await self._source.close()
