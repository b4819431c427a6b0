"""`JobHandle`: reads an enqueued job, waits for its result, follows its events, and cancels it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.engine import Engine
from holdfast.errors import JobFailed
from holdfast.lifecycle import FINAL, State
from holdfast.model import Event, Job
from holdfast.sdk.celery_names import CeleryNames

if TYPE_CHECKING:
    from holdfast.sdk.app import App

R = TypeVar("R")
_T = TypeVar("_T")
POLL_FIRST_SECONDS, POLL_SECONDS = 0.005, 0.5


def failure_of(job: Job) -> JobFailed:
    # The reason of a canceled job is free text; any other reason is a code.
    error = job.error or {"message" if job.state is State.CANCELED else "code": job.reason}
    code, message = str(error.get("code") or job.state.value), str(error.get("message") or "")
    return JobFailed(job.id, job.type, job.status, code=code, message=message)


class JobHandle(CeleryNames, Generic[R]):
    def __init__(self, app: App, job_id: str, *, existed: bool = False, read: Callable[[Any], R] | None = None) -> None:
        self._app = app
        self._read = read
        self.id = job_id
        self.existed = existed  # an earlier request with the same idempotency key created it

    def __repr__(self) -> str:
        return f"JobHandle({self.id})"

    async def _engine(self) -> Engine:
        """Writes nothing: a transaction of the caller may hold SQLite's only lock."""
        return await self._app.engine(declared=False)

    async def get(self) -> Job:
        return await (await self._engine()).reads.get(self.id)

    async def status(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED, CANCELED or REJECTED."""
        return (await self.get()).status

    async def result(self, timeout: float | None = None) -> R:
        """Waits for the result. `JobFailed` if the job ended otherwise, `TimeoutError` after `timeout` seconds."""
        job = await (await self._engine()).results.wait(self.id, timeout)
        if not job.final:
            raise TimeoutError(f"job {self.id} is still {job.status} after {timeout:g} s")
        if job.state is not State.SUCCEEDED:
            raise failure_of(job)
        return job.result if self._read is None else self._read(job.result)

    async def cancel(self, reason: str = "canceled") -> bool:
        """True if it is canceled, False if its worker was asked to stop it."""
        answer = await (await self._engine()).cancel(self.id, reason=reason)
        return answer.state is State.CANCELED

    async def events(self) -> AsyncIterator[Event]:
        """Its events from the first one on, then new ones as they happen, until the job ends."""
        clock, seen, pause = self._app.clock, 0, POLL_FIRST_SECONDS
        while True:
            events = await (await self._engine()).reads.history(self.id, after=seen)
            for event in events:
                seen, pause = event.seq, POLL_FIRST_SECONDS
                yield event
                if event.to_state is not None and State(event.to_state) in FINAL:
                    return
            if not events:
                await self.get()  # raises if the job does not exist
                await clock.sleep(pause)
                pause = min(POLL_SECONDS, pause * 1.5)

    def get_sync(self) -> Job:
        return self._app.run_sync(self.get)

    def status_sync(self) -> str:
        return self._app.run_sync(self.status)

    def result_sync(self, timeout: float | None = None) -> R:
        return self._app.run_sync(lambda: self.result(timeout))

    def cancel_sync(self, reason: str = "canceled") -> bool:
        return self._app.run_sync(lambda: self.cancel(reason))

    def events_sync(self) -> Iterator[Event]:
        each = self.events()

        async def next_event() -> Event | None:
            return await anext(each, None)

        while (event := self._app.run_sync(next_event)) is not None:
            yield event
