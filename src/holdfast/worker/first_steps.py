"""Runs the coroutines of jobs up to their first wait, many in one turn of the event loop: most short jobs end there.

From Python 3.12 on each job has a task that starts eagerly. Python 3.11 has no such tasks. There, one task runs the
first steps of jobs one after the other, until one of them waits: from then on it is the task of that job alone, and
another one goes on with the rest. The next jobs of its type have a task each from the start, as they will wait, too.

So `asyncio.current_task()` is the same task for as long as a job runs, and `asyncio.timeout`, task groups and
cancellation work in a handler on every version.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from types import coroutine
from typing import Any

from holdfast.clock import Clock
from holdfast.worker.execution import Execution

EAGER_TASKS = sys.version_info >= (3, 12)
TURN_SECONDS = 0.005  # then the event loop has a turn, for connections and timers
OWN_TASKS = 31  # on Python 3.11: of so many jobs of its type, after one that waited

Work = Coroutine[Any, Any, None]


class FirstSteps:
    """`execute` is the coroutine of a job. `refill` is called when all jobs have begun: it may add more."""

    def __init__(
        self,
        execute: Callable[[Execution], Work],
        refill: Callable[[], None],
        clock: Clock,
        *,
        eager_tasks: bool = EAGER_TASKS,
    ) -> None:
        self._execute, self._refill, self._clock = execute, refill, clock
        self._eager_tasks = eager_tasks
        self._empty_context = copy_context()  # each job starts with a copy: no context variable leaks between jobs
        self._not_begun: deque[Execution] = deque()
        self._scheduled = False
        self._own_tasks: dict[str, int] = {}  # on Python 3.11, by type: how many jobs get a task of their own
        self.under_way = False  # jobs that end now need not ask for the next ones: `refill` follows

    def add(self, run: Execution) -> None:
        if self._own_tasks and self._own_tasks.get(run.lease.type):
            self._own_tasks[run.lease.type] -= 1
            run.task = self._create_task(self._execute(run))
        else:
            self._not_begun.append(run)
            self._schedule()

    def _schedule(self) -> None:
        if self._not_begun and not self._scheduled:
            self._scheduled = True
            if self._eager_tasks:
                asyncio.get_running_loop().call_soon(self._start_tasks, context=self._empty_context)
            else:
                self._create_task(self._carry())

    def _more(self, until: float) -> bool:
        """All have begun: whether there are others, to go on in this turn."""
        self._refill()
        return bool(self._not_begun) and self._clock.monotonic() < until

    def _end_turn(self) -> None:
        self.under_way = self._scheduled = False
        self._schedule()

    def _start_tasks(self) -> None:
        loop, until = asyncio.get_running_loop(), self._clock.monotonic() + TURN_SECONDS
        self.under_way = True
        try:
            while self._not_begun or self._more(until):
                work, context = self._execute(self._not_begun.popleft()), self._empty_context.copy()
                asyncio.Task(work, loop=loop, context=context, eager_start=True)  # type: ignore[call-arg, unused-ignore]
        finally:
            self._end_turn()

    # -- Python 3.11 ------------------------------------------------------------------------------------------

    def _create_task(self, work: Work) -> asyncio.Task[None]:
        """The event loop keeps it until its first step, and then its job does."""
        return asyncio.get_running_loop().create_task(work, context=self._empty_context.copy())

    async def _carry(self) -> None:
        """A handler that cancelled its own task, and ended, must not cancel the next job."""
        task, until, rest = asyncio.current_task(), self._clock.monotonic() + TURN_SECONDS, None
        assert task is not None  # noqa: S101
        self.under_way = True
        try:
            while rest is None and not task.cancelling() and (self._not_begun or self._more(until)):
                run = self._not_begun.popleft()
                run.task = task
                rest = self._first_step(run)
        finally:
            self._end_turn()
        if rest is not None:
            await rest

    def _first_step(self, run: Execution) -> Awaitable[None] | None:
        """Returns the rest of the job, if it waits."""
        work, context = self._execute(run), self._empty_context.copy()
        try:
            awaited = context.run(work.send, None)
        except StopIteration:
            return None
        self._own_tasks[run.lease.type] = OWN_TASKS
        not_begun, self._not_begun = self._not_begun, deque()
        for other in not_begun:
            self.add(other)
        return _rest(work, awaited, context)


@coroutine
def _rest(work: Work, awaited: Any, context: Context) -> Generator[Any, Any, None]:
    """The steps of a coroutine after the first one, which ended with this `awaited`, all in its own context."""
    while True:
        step: Callable[[], Any]
        try:
            step = partial(work.send, (yield awaited))
        except BaseException as error:
            step = partial(work.throw, error)
        try:
            awaited = context.run(step)
        except StopIteration:
            return
