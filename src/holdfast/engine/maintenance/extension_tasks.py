"""Maintenance tasks of extensions: each runs in its own transaction, in one process at a time.

The transaction that runs a task locks its row. If the process crashes, the task stays due, and another process runs it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.hooks.hooks import error_text, warn_of_blocking
from holdfast.engine.hooks.running import running_in
from holdfast.store import Tx, q

SEEN_SECONDS = 15.0  # how often a process records its extensions
SOON_SECONDS = 0.5
TASK_SECONDS = 30.0
FORGET_SECONDS = 7 * 86_400.0  # a task overdue for longer no longer exists in any process
BACKOFF_MAX_SECONDS = 300.0
SLACK_SECONDS = 5.0

log = logging.getLogger("holdfast.maintenance")


@dataclass(frozen=True)
class Task:
    """Runs every `every` seconds, for at most `seconds`."""

    extension: str
    name: str
    every: float
    function: Callable[[Tx], Awaitable[object]]
    seconds: float = TASK_SECONDS

    @property
    def key(self) -> tuple[str, str]:
        return self.extension, self.name

    @property
    def named(self) -> dict[str, Any]:
        return {"extension": self.extension, "task": self.name}

    @property
    def most(self) -> float:
        """The longest wait until the next run."""
        return max(self.every, BACKOFF_MAX_SECONDS) + SLACK_SECONDS


class DueTasks(msgspec.Struct, frozen=True):
    """The tasks that are due now, and how long to wait after them. `unseen`: this process must record its extensions;
    `unknown`: its tasks that are not in the database."""

    unseen: bool
    unknown: list[Task]
    due: list[Task]
    pause: float


async def due_tasks(tx: Tx, ctx: EngineContext, tasks: Iterable[Task]) -> DueTasks:
    seen = {row["name"]: row for row in await tx.all(q.extensions)}
    rows = {(row["extension"], row["task"]): row for row in await tx.all(q.maintenance)}
    unseen = any(
        name not in seen or _is_old(seen[name]["seen_at"], seen[name]["now_at"]) for name in ctx.hooks.extensions
    )
    waits = {task: _wait(rows[task.key], task) for task in tasks if task.key in rows}
    return DueTasks(
        unseen=unseen,
        unknown=[task for task in tasks if task.key not in rows],
        due=[task for task, seconds in waits.items() if seconds <= 0],
        pause=max(SOON_SECONDS, min([SEEN_SECONDS, *(seconds for seconds in waits.values() if seconds > 0)])),
    )


def _is_old(at: datetime, now: datetime) -> bool:
    return not now - timedelta(seconds=SEEN_SECONDS) < at <= now + timedelta(seconds=SLACK_SECONDS)


def _wait(row: Any, task: Task) -> float:
    seconds: float = (row["due_at"] - row["now_at"]).total_seconds()
    return 0.0 if seconds > task.most else seconds


async def record_extensions(tx: Tx, ctx: EngineContext, unknown: Iterable[Task]) -> None:
    """Record the extensions of this process, and add its new tasks."""
    names = list(ctx.hooks.extensions)
    await tx.all(q.see_extensions, seen=[(name,) for name in names])
    await tx.all(q.forget_tasks, names=names, seconds=FORGET_SECONDS)
    if new := sorted(task.key for task in unknown):
        await tx.all(q.add_tasks, new=new)


async def run_task(tx: Tx, ctx: EngineContext, task: Task) -> bool:
    """False: another process runs it, or has just run it."""
    row = await tx.one(q.take_task, **task.named, every=task.every, most=task.most)
    if row is None:
        return False
    try:
        async with tx.savepoint():
            blocked = partial(warn_of_blocking, task.extension, task.function)
            with running_in(tx, ctx):
                await tx.call(_called(task, tx), task.seconds, blocked)
    except (Exception, SystemExit) as error:
        await _note_failure(tx, ctx, task, error, row["failures"] + 1)
    else:
        await tx.one(q.end_task, **task.named)
        if row["failures"]:
            log.info("extension %s: maintenance %s recovered", *task.key, extra=task.named)
    return True


async def _called(task: Task, tx: Tx) -> None:
    if (answer := await task.function(tx)) is not None:
        raise TypeError(f"it returned {type(answer).__name__}; a maintenance task must return None")


async def _note_failure(tx: Tx, ctx: EngineContext, task: Task, error: BaseException, failures: int) -> None:
    pause = min(2.0 ** min(failures, 10), BACKOFF_MAX_SECONDS)
    late = f"TimeoutError: it took longer than {task.seconds:g} s"
    text = late if isinstance(error, TimeoutError) else error_text(error, ctx.limits.error_max_chars)
    await tx.one(q.note_task_failure, **task.named, error=text, seconds=pause)
    log.warning(
        "extension %s: maintenance %s failed (%d times) and was rolled back, will retry in %.0f s: %s",
        *(*task.key, failures, pause, text),
        exc_info=error if failures == 1 else None,
        extra=task.named,
    )
