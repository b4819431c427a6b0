"""Those who wait in the room: what each wants, and how it is called."""

from __future__ import annotations

import asyncio

from holdfast.engine.maintenance.open_work import Opening

ANSWER_SECONDS = 2.0  # one who takes so long to claim keeps nobody else waiting


class WaitingClaim:
    """One waiting claim."""

    def __init__(self, worker: str, queues: list[str] | None, types: list[str] | None, limit: int) -> None:
        self.worker, self.queues, self.types, self.limit = worker, queues, types, limit
        self.stirred = asyncio.Event()  # called, or to go home
        self._call: asyncio.Future[bool] | None = None

    def waits_for(self, opening: Opening) -> bool:
        return (self.queues is None or opening.queue in self.queues) and (
            self.types is None or opening.type in self.types
        )

    @property
    def called(self) -> bool:
        return self._call is not None

    def call(self) -> asyncio.Future[bool]:
        """Look now. The future tells whether it was worth it; cancelled, if this seat is left."""
        self._call = asyncio.get_running_loop().create_future()
        self.stirred.set()
        return self._call

    def answer(self, *, found: bool) -> None:
        if self._call is not None and not self._call.done():
            self._call.set_result(found)
        self._call = None

    def leave(self) -> None:
        if self._call is not None:
            self._call.cancel()


def enough(waiting: dict[WaitingClaim, list[Opening]], lanes: list[Opening]) -> list[WaitingClaim]:
    """In that order, as many as there are jobs for."""
    left = {lane: lane.ready for lane in lanes}
    chosen = []
    for seat, may_take in waiting.items():
        wanted = seat.limit
        for lane in may_take:
            taken = min(wanted, left[lane])
            wanted, left[lane] = wanted - taken, left[lane] - taken
        if wanted < seat.limit:
            chosen.append(seat)
    return chosen


async def call(seats: list[WaitingClaim]) -> list[bool | None]:
    """Whether each has found something; None of whoever left, or is still looking."""
    calls = [seat.call() for seat in seats]
    await asyncio.wait(calls, timeout=ANSWER_SECONDS)
    return [call.result() if call.done() and not call.cancelled() else None for call in calls]
