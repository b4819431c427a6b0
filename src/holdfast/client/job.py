"""`RemoteJob`: a handle for a job on a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from holdfast import wire
from holdfast.client.codec import FINAL, result_of

if TYPE_CHECKING:
    from holdfast.client.client import Client

WAIT_SECONDS = 20
PAUSE_SECONDS = 0.1  # if less than a second is left for a long poll


class RemoteJob:
    def __init__(self, client: Client, job_id: str) -> None:
        self._client = client
        self.id = job_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id})"

    async def get(self) -> wire.JobView:
        return await self._client.get(self.id)

    async def status(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED, CANCELED or REJECTED."""
        return (await self.get()).status

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the handler's result; `JobFailed` if the job ended otherwise, `TimeoutError` after the timeout."""
        clock = self._client.clock
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            left = WAIT_SECONDS if until is None else max(0.0, until - clock.monotonic())
            view = await self._client.get(self.id, wait_seconds=int(min(left, WAIT_SECONDS)))
            if view.status in FINAL:
                return result_of(view)
            if not left:
                raise TimeoutError(f"job {self.id} is still {view.status} after {timeout:g} s")
            await clock.sleep(min(left, PAUSE_SECONDS))

    def events(self) -> AsyncGenerator[wire.JobEvent]:
        """All events of the job, until it ends."""
        return self._client.events(self.id)

    async def cancel(self) -> str:
        """The job's status: CANCELED, or RUNNING while its worker is asked to stop."""
        return await self._client.cancel(self.id)
