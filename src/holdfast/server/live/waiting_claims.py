"""A claim that waits in a long poll: the queues and types it wants, and how it is notified."""

from __future__ import annotations

import asyncio

from holdfast.engine.polls.open_work import OpenLane

ANSWER_SECONDS = 2.0  # a claim that takes longer does not hold up the others


class WaitingClaim:
    """One waiting claim request."""

    def __init__(self, worker: str, queues: list[str] | None, types: list[str] | None, limit: int) -> None:
        self.worker, self.queues, self.types, self.limit = worker, queues, types, limit
        self.signaled = asyncio.Event()  # notified, or the client disconnected
        self._call: asyncio.Future[bool] | None = None

    def waits_for(self, opening: OpenLane) -> bool:
        return (self.queues is None or opening.queue in self.queues) and (
            self.types is None or opening.type in self.types
        )

    @property
    def notified(self) -> bool:
        return self._call is not None

    def notify(self) -> asyncio.Future[bool]:
        """Claim now. The future tells whether a job was found; it is cancelled if the claim ends."""
        self._call = asyncio.get_running_loop().create_future()
        self.signaled.set()
        return self._call

    def resolve(self, *, found: bool) -> None:
        if self._call is not None and not self._call.done():
            self._call.set_result(found)
        self._call = None

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()


def choose(candidates: dict[WaitingClaim, list[OpenLane]], lanes: list[OpenLane]) -> list[WaitingClaim]:
    """As many of the candidates, in their order, as there are jobs for."""
    left = {lane: lane.ready for lane in lanes}
    chosen = []
    for claim, may_take in candidates.items():
        wanted = claim.limit
        for lane in may_take:
            taken = min(wanted, left[lane])
            wanted, left[lane] = wanted - taken, left[lane] - taken
        if wanted < claim.limit:
            chosen.append(claim)
    return chosen


async def notify_all(claims: list[WaitingClaim]) -> list[bool | None]:
    """Whether each claim found a job; None if it ended or is still claiming."""
    calls = [claim.notify() for claim in claims]
    await asyncio.wait(calls, timeout=ANSWER_SECONDS)
    return [call.result() if call.done() and not call.cancelled() else None for call in calls]
