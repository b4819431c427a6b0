"""Warns while a handler blocks the event loop: which job, where in its code, and what to do about it.

A thread checks when the loop last ran, which the monitor records at each tick: this costs the loop nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock

if TYPE_CHECKING:
    from holdfast.worker.execution import Execution

BLOCKED_SECONDS = 1.2  # since the last tick, which comes every 0.2 s: a block of at least a second
CHECK_SECONDS = 0.25
LATE_SECONDS = 0.5  # a check that comes so late: a thread held the GIL, or the process was suspended
FRAMES_MAX = 30
JOBS_MAX = 3

ADVICE = (
    "no other job of this worker process can go on meanwhile. Declare the job with `def` instead of `async def`, call "
    'what blocks with `await asyncio.to_thread(...)`, or use `isolation="process"`'
)
AFTERWARDS = ". It probably held the interpreter lock: the stack may show a line that ran later"
CALLER = str(Path(__file__).with_name("handler.py"))

log = logging.getLogger("holdfast.worker")
current: ContextVar[Execution | None] = ContextVar(
    "holdfast_run", default=None
)  # the execution that the task belongs to


@contextmanager
def watched(ticked: Callable[[], float], running: Callable[[], list[Execution]]) -> Iterator[None]:
    """Watch the event loop of this thread. `ticked`: when it last ran."""
    watch = LoopWatch(asyncio.get_running_loop(), threading.get_ident(), ticked, running)
    thread = threading.Thread(target=watch.run, name="holdfast-loop-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.done.set()


class LoopWatch:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: int,
        ticked: Callable[[], float],
        running: Callable[[], list[Execution]],
    ) -> None:
        self._loop, self._thread = loop, thread
        self._ticked, self._running = ticked, running
        self._clock = Clock()
        self._warned_at = 0.0  # the tick before the block that was warned of
        self.done = threading.Event()

    def run(self) -> None:
        looked, used = self._clock.monotonic(), _cpu_seconds()
        while not self.done.wait(CHECK_SECONDS):
            now, using = self._clock.monotonic(), _cpu_seconds()
            late = now - looked > LATE_SECONDS
            suspended = late and using - used < LATE_SECONDS
            looked, used = now, using
            if not suspended:
                self._check(now, late)

    def _check(self, now: float, late: bool) -> None:
        tick = self._ticked()
        if now - tick < BLOCKED_SECONDS or tick == self._warned_at:
            return
        run, others = self._culprit(), self._running()
        frame = sys._current_frames().get(self._thread)
        if frame is None or _waits(frame) or self._ticked() != tick:  # it runs again
            return
        self._warned_at = tick
        _warn(run, others, now - tick, _stack(frame), late)

    def _culprit(self) -> Execution | None:
        """The execution whose task the loop runs, or a task that it created, from Python 3.12 on."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        if hasattr(task, "get_context"):  # Python 3.12
            found: Execution | None = task.get_context().get(current)
            return found
        return next((run for run in self._running() if run.task is task), None)


def _waits(frame: FrameType) -> bool:
    """The loop is idle: it was late, and nothing blocks it now."""
    return frame.f_code.co_name == "select" and frame.f_code.co_filename == selectors.__file__


def _warn(run: Execution | None, others: list[Execution], seconds: float, stack: str, late: bool) -> None:
    who = _named(run) if run is not None else f"a task beside {_several(others)}"
    fields: dict[str, Any] = {"blocked_seconds": round(seconds, 1)}
    if run is not None:
        fields |= {"job_id": run.lease.id, "job_type": run.lease.type, "attempt": run.lease.attempt}
    message = "%s has blocked the event loop for %.1f s: " + ADVICE + (AFTERWARDS if late else "")
    arguments = (who, seconds)
    log.handle(
        log.makeRecord(log.name, logging.WARNING, __file__, 0, message, arguments, None, extra=fields, sinfo=stack)
    )


def _named(run: Execution) -> str:
    whose = f" of extension {run.handler.extension}" if run.handler.extension else ""
    return f"job {run.lease.id} ({run.lease.type}{whose})"


def _several(runs: list[Execution]) -> str:
    """Executions whose task it may be."""
    named = [_named(run) for run in runs if run.handler.is_async]
    return ", ".join(named[:JOBS_MAX]) + (", ..." if len(named) > JOBS_MAX else "") or "no async job"


def _stack(frame: FrameType) -> str:
    """From the handler down to the blocking call, without the worker's own frames."""
    frames = traceback.extract_stack(frame)
    calls = [place for place, each in enumerate(frames) if each.filename == CALLER]
    shown = frames[calls[-1] + 1 :] if calls else frames
    return "Stack (most recent call last):\n" + "".join(traceback.format_list((shown or frames)[-FRAMES_MAX:]))


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system
