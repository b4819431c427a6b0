"""New jobs from guards, effects and maintenance of extensions, in the transaction that these run in."""

from __future__ import annotations

from contextvars import ContextVar

from holdfast.engine.hooks.running import running_hook
from holdfast.engine.insert import Created
from holdfast.engine.within import Within
from holdfast.errors import Invalid
from holdfast.model import NewJob
from holdfast.store import Tx

LEVELS_MAX = 5  # of jobs whose hooks enqueue jobs, in one transaction

_level: ContextVar[int] = ContextVar("holdfast_enqueue_level", default=0)


async def enqueue(tx: Tx, new: NewJob) -> Created:
    running, level = running_hook(tx), _level.get()
    if running is None:
        raise Invalid(
            "ext.enqueue(tx, ...) takes the transaction that a guard, an effect or a maintenance function was called "
            "with; in a route use request.enqueue(...), in a handler tx.enqueue(...)",
            code="not_in_hook",
        )
    if level == LEVELS_MAX:
        raise Invalid(
            f"job type {new.type!r}: hooks enqueue jobs whose hooks enqueue jobs, {LEVELS_MAX} levels deep",
            code="enqueue_loop",
        )
    token = _level.set(level + 1)
    try:
        made = await Within(*running).create(new)
    finally:
        _level.reset(token)
    await tx.wait_for_locks()  # the lock timeout of create is only for idempotency keys
    return made
