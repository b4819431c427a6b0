"""The backend of a handler's context in the worker process: sends progress and questions to the worker's source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.errors import LeaseLost
from holdfast.model import Part
from holdfast.model.reports import Progress, Withdrawal, Withdrawn
from holdfast.worker.outcomes import Recorded

if TYPE_CHECKING:
    from holdfast.worker.execution import Execution
    from holdfast.worker.executor import Executor
    from holdfast.worker.metrics import WorkerCounters
    from holdfast.worker.progress_reporter import ProgressReporter


class DirectBackend:
    """Implements `worker/context.py: ContextBackend` for one execution. Its reports go one after the other, so that the
    newest is stored last."""

    __slots__ = ("_clock", "_executor", "_metrics", "_order", "_reporter", "_run")

    def __init__(
        self,
        run: Execution,
        executor: Executor,
        reporter: ProgressReporter,
        clock: Clock,
        metrics: WorkerCounters | None,
    ) -> None:
        self._run, self._executor, self._reporter = run, executor, reporter
        self._clock, self._metrics = clock, metrics
        self._order: asyncio.Lock | None = None  # made for the first report

    async def progress(self, report: Progress) -> None:
        run = self._run
        self._order = self._order or asyncio.Lock()
        async with self._order:
            run.progress_at = self._clock.monotonic()
            try:
                with self._losing():
                    advanced = await self._reporter.progress(run, report)
            except LeaseLost:
                if self._metrics is not None:
                    self._metrics.refused()
                raise
            finally:
                self._executor.publish_deadline(run)
            if advanced.cancel_requested:
                self._executor.cancel(run)

    async def parts(self, job_id: str) -> list[Part]:
        with self._losing():
            return await self._reporter.parts(self._run)

    async def withdraw(self, asked: Withdrawal) -> Withdrawn:
        with self._losing():
            return await self._reporter.withdraw(self._run, asked)

    async def recorded(self, outcome: Recorded) -> None:
        self._run.recorded = outcome

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """The database says that the lease is lost."""
        try:
            yield
        except LeaseLost:
            self._executor.lose(self._run)
            raise
