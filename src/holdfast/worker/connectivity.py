"""A worker's source that knows whether the database, or the server, is reachable at the moment."""

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

SLOW_SECONDS = 0.5  # a call that takes longer counts as an outage

_T = TypeVar("_T")


class MonitoredSource:
    """Forwards every call. `away` while the last call failed by an outage, or one takes too long."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._failing = False
        self._pending: dict[int, float] = {}  # when each call under way began
        self._number = 0

    @property
    def away(self) -> bool:
        if self._failing or not self._pending:
            return self._failing
        return self._clock.monotonic() - min(self._pending.values()) > SLOW_SECONDS

    async def _call(self, call: Awaitable[_T]) -> _T:
        self._number += 1
        number = self._number
        self._pending[number] = self._clock.monotonic()
        try:
            result = await call
        except StoreError:
            self._failing = True
            raise
        except HoldfastError:
            self._failing = False
            raise
        else:
            self._failing = False
            return result
        finally:
            del self._pending[number]

    async def claim(self, limit: int, *, queues: list[str] | None, types: list[str] | None) -> Claims:
        return await self._call(self._source.claim(limit, queues=queues, types=types))

    async def recover_claims(self, known: set[str]) -> Claims:
        return await self._call(self._source.recover_claims(known))

    async def progress(self, reports: list[Progress]) -> Sequence[Advanced | HoldfastError]:
        return await self._call(self._source.progress(reports))

    async def parts(self, job_id: str) -> list[Part]:
        return await self._call(self._source.parts(job_id))

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        return await self._call(self._source.withdraw(asked))

    async def complete(self, items: list[Complete]) -> Answers:
        return await self._call(self._source.complete(items))

    async def fail(self, items: list[Fail]) -> Answers:
        return await self._call(self._source.fail(items))

    async def release(self, items: list[Release]) -> Answers:
        return await self._call(self._source.release(items))

    async def reject(self, items: list[Rejection]) -> Answers:
        return await self._call(self._source.reject(items))

    async def wait(self, seconds: float, queues: list[str] | None = None, types: list[str] | None = None) -> bool:
        return await self._source.wait(seconds, queues, types)

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat:
        return await self._source.heartbeat(leases, liveness=liveness, slots=slots)

    async def stop_requests(self, leases: list[HeldLease]) -> list[HeldLease]:
        return await self._source.stop_requests(leases)

    async def close(self) -> None:
        await self._source.close()
