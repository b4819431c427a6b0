"""The parts of a job, for its handler: each has its own status, progress and data."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.model import Part, PartStatus
from holdfast.model.json import readable
from holdfast.worker.blocking import Wait, blocking
from holdfast.worker.outcomes import Snooze

if TYPE_CHECKING:
    from holdfast.worker.context import Context

FINISHED = (PartStatus.COMPLETED, PartStatus.SKIPPED)


class PartInHand:
    """A part that a handler works on. `data` was stored with it by this or an earlier execution."""

    def __init__(
        self, context: Context, part: Part, place: int = 0, total: int = 1, *, units: int | None = None
    ) -> None:
        self._context = context
        self.name, self.status = part.name, part.status
        self.place, self.total = place, total  # among the parts of a loop
        self.data: Any = part.data
        self._units = part.total if units is None else units
        self._reopen = False

    @property
    def finished(self) -> bool:
        """Completed or skipped, by this execution or an earlier one."""
        return self.status in FINISHED

    async def progress(
        self, percent: float | None = None, *, total: int | None = None, done: int | None = None
    ) -> None:
        """In percent, or in units done; the percentage follows from the units if the total is known."""
        self._units = total if total is not None else self._units
        if percent is None and done is not None and self._units:
            percent = min(100.0, 100 * done / self._units)
        await self._say(PartStatus.IN_PROGRESS, percent=percent, done=done)

    async def complete(self, data: Any = None) -> None:
        """Mark it as done: the next execution skips it. `data` is stored with it."""
        self.data = self.data if data is None else data
        await self._say(PartStatus.COMPLETED, percent=100, done=self._units)

    async def skip(self, reason: str | None = None) -> None:
        """Mark it as not applicable to this job; it counts as finished."""
        await self._say(PartStatus.SKIPPED, error=reason)

    async def fail(self, error: str | BaseException) -> None:
        """Mark it as failed. The other parts and the job itself are not affected."""
        await self._say(PartStatus.FAILED, error=_text(error))

    async def reopen(self) -> None:
        """Start a finished part again."""
        self.data, self._reopen = None, True
        await self._say(PartStatus.IN_PROGRESS)

    async def begin(self, *, step: str | None = None) -> None:
        if not self.finished:
            await self._say(PartStatus.IN_PROGRESS, step=step)

    async def leave(self, error: BaseException | None, *, percent: float | None = None) -> None:
        """Complete a part that is still in progress, or fail it with the error; an interrupt changes nothing."""
        if self.status is not PartStatus.IN_PROGRESS or isinstance(error, asyncio.CancelledError | LeaseLost | Snooze):
            return
        if error is None:
            await self._say(PartStatus.COMPLETED, percent=100, done=self._units, overall=percent)
            return
        with suppress(HoldfastError):  # the handler's error matters more
            await self.fail(error)

    async def _say(
        self,
        status: PartStatus,
        *,
        percent: float | None = None,
        done: int | None = None,
        error: str | None = None,
        step: str | None = None,
        overall: float | None = None,
    ) -> None:
        part = Part(
            name=self.name,
            status=status,
            percent=percent,
            total=self._units,
            done=done,
            error=error,
            data=self.data,
            reopen=self._reopen,
        )
        await self._context.keep_part(part, overall, step)
        self.status, self._reopen = status, False


def _text(error: str | BaseException) -> str:
    return error if isinstance(error, str) else readable(f"{type(error).__name__}: {error}")


class SyncPartInHand:
    """The same for a sync handler."""

    def __init__(self, part: PartInHand, wait: Wait) -> None:
        self._wrapped, self._wait = part, wait
        self.name, self.place, self.total = part.name, part.place, part.total

    @property
    def data(self) -> Any:
        return self._wrapped.data

    @data.setter
    def data(self, data: Any) -> None:
        self._wrapped.data = data

    @property
    def status(self) -> PartStatus:
        return self._wrapped.status

    @property
    def finished(self) -> bool:
        return self._wrapped.finished

    progress = blocking(PartInHand.progress)
    complete = blocking(PartInHand.complete)
    skip = blocking(PartInHand.skip)
    fail = blocking(PartInHand.fail)
    reopen = blocking(PartInHand.reopen)
