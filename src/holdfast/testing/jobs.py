"""The jobs of an app in a test: what was enqueued, what ran, and the clock."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.engine import Filter
from holdfast.errors import Invalid, UnknownName
from holdfast.ids import Ids
from holdfast.lifecycle import STATUS
from holdfast.model import Job
from holdfast.sdk.app import App
from holdfast.sdk.definitions import Definition
from holdfast.sdk.handle import JobHandle
from holdfast.settings import plain_url
from holdfast.store.migrate import dialect_of
from holdfast.testing.clock import SharedClock
from holdfast.testing.run import Ran, drain

PAGE = 500
WAITING = [state.value for state, status in STATUS.items() if status == "PENDING"]


@contextlib.contextmanager
def jobs_of(app: App, *, start: datetime | None = None, database_url: str | None = None) -> Iterator[Jobs]:
    """Until the end of the block the app works on a temporary database, at a time that stands still from `start` on.

    It is a SQLite file; or, where `database_url` names a database of PostgreSQL, a copy of that.
    """
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True)
        folder = stack.enter_context(temporary)
        clock = SharedClock.create(Path(folder, "clock"), start)
        url = stack.enter_context(_database(folder, database_url))
        stack.enter_context(app.override(url, clock, Ids()))
        yield Jobs(app, clock)


def _database(folder: str, url: str | None) -> contextlib.AbstractContextManager[str]:
    if not url:
        return contextlib.nullcontext(f"sqlite:///{folder}/jobs.db")
    if dialect_of(plain_url(url)) == "sqlite":
        raise Invalid("tests on SQLite get a file of their own: leave the URL out", code="invalid_database_url")
    from holdfast.testing.postgres import copy_of

    return copy_of(url)


class Jobs:
    """Created by `jobs_of`, or by the fixture `holdfast_jobs`."""

    def __init__(self, app: App, clock: SharedClock) -> None:
        self.app, self.clock = app, clock

    @property
    def database_url(self) -> str:
        """The database of this test, for the connections of your own code."""
        return self.app.settings.url

    def enqueued(self, job: str | Definition[..., Any] | None = None, /, **payload: Any) -> list[Job]:
        """The jobs that wait, oldest first: of this type, if given, and with at least this payload."""
        job_type = job.name if isinstance(job, Definition) else job
        wanted = Filter(states=WAITING, types=None if job_type is None else [job_type])
        found = self.app.run_sync(lambda: self._find(wanted))
        if job_type is not None:
            self._refuse_typing_errors(job_type, payload, known=bool(found))
        return [one for one in found if self._fits(one, payload)]

    def get(self, job: JobHandle[Any] | str) -> Job:
        """The stored job."""
        job_id = job if isinstance(job, str) else job.id
        return self.app.run_sync(self.app.job_handle(job_id).get)

    async def drain(self, *, until_done: bool = False, raise_errors: bool = True) -> list[Ran]:
        """Run all jobs that are due, and those that they make due, in a real worker. Returns what ran, as it completed.

        The error of each job whose last execution failed is raised: the original one, several as an ExceptionGroup.
        `until_done` moves the clock to what is due next, such as a retry, as long as anything waits.
        """
        ran = await drain(self.app, self.clock, until_done=until_done)
        if raise_errors:
            _raise_errors(ran)
        return ran

    def drain_sync(self, *, until_done: bool = False, raise_errors: bool = True) -> list[Ran]:
        """`drain` for sync tests."""

        async def work() -> list[Ran]:
            try:
                return await self.drain(until_done=until_done, raise_errors=raise_errors)
            finally:
                await self.app.close()

        _refuse_event_loop()
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(work())

    async def _find(self, wanted: Filter) -> list[Job]:
        engine = await self.app.engine()
        page = await engine.reads.page(wanted, limit=PAGE)
        found = list(page.jobs)
        while page.next is not None:
            page = await engine.reads.page(wanted, cursor=page.next, limit=PAGE)
            found += page.jobs
        return found[::-1]

    def _refuse_typing_errors(self, job_type: str, payload: dict[str, Any], *, known: bool) -> None:
        """Raises for an unknown name, which would make `assert not jobs.enqueued(...)` always true."""
        handler = self.app.handlers.get(job_type)
        if handler is None:
            if not known:
                raise UnknownName.of("job_type", job_type, sorted(self.app.handlers))
        elif not handler.signature.open:
            for name in payload.keys() - set(handler.signature.names):
                raise UnknownName.of("parameter", name, list(handler.signature.names))

    def _fits(self, job: Job, payload: dict[str, Any]) -> bool:
        """A value matches as the handler would get it, or as the stored JSON."""
        views = [job.payload]
        if payload and (handler := self.app.handlers.get(job.type)) is not None:
            with contextlib.suppress(Invalid):  # a stored payload may not match this handler
                views.append(handler.signature.arguments(job.payload))
        return all(any(name in view and view[name] == value for view in views) for name, value in payload.items())


def _raise_errors(ran: list[Ran]) -> None:
    last = {one.job_id: one for one in ran}.values()
    failed = [(one, one.error) for one in last if one.error is not None]
    for one, error in failed:
        error.add_note(f"raised by job {one.job_id}, {one.type}, in its attempt {one.attempt}")
    errors = [error for _, error in failed]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} jobs failed", errors)


def _refuse_event_loop() -> None:
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise Invalid("an event loop runs here: `await jobs.drain()` instead", code="event_loop_runs")
