"""The context of a running handler: `Context` for async handlers, `SyncContext` for sync ones."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol, TypeVar

from holdfast.errors import Invalid, LeaseLost
from holdfast.model import Lease, Part, PartStatus
from holdfast.model.history import PART_BYTES_MAX
from holdfast.model.json import decode, encode
from holdfast.model.reports import Progress, Withdrawal, Withdrawn
from holdfast.observe.extension_metrics import Metrics
from holdfast.worker.blocking import blocking
from holdfast.worker.outcomes import Recorded, Reject, Snooze, WaitForChildren
from holdfast.worker.parts import PartInHand, SyncPartInHand
from holdfast.worker.transactions import Database, JobTx, SyncJobTx, no_database

_T = TypeVar("_T")
NO_METRICS = Metrics()
log = logging.getLogger("holdfast.job")


class _Block:
    """Whether the block of a transaction is still open."""

    open = True


# Set in the code inside the block and in tasks that it starts, not in tasks that run beside it.
_block: ContextVar[_Block | None] = ContextVar("holdfast_transaction", default=None)


def in_transaction() -> bool:
    """Whether the caller runs inside the block of a `ctx.transaction()`."""
    return (block := _block.get()) is not None and block.open


class ContextBackend(Protocol):
    """How a context reaches the worker: directly, or over a socket from a child process."""

    async def progress(self, report: Progress) -> None: ...

    async def parts(self, job_id: str) -> list[Part]: ...

    async def withdraw(self, asked: Withdrawal) -> Withdrawn: ...

    async def recorded(self, outcome: Recorded) -> None:
        """The handler has completed the job in its own transaction."""
        ...


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields to every log record."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class _Facts:
    """The facts of the job, and three flags that the worker may set while the handler runs."""

    cancel_requested = False
    lost = False
    stopping = False
    recorded_as: Recorded | None = None  # set when the handler has completed the job in a transaction
    metrics = NO_METRICS  # those of the extension that defines the job type, by name
    _log: _JobLog | None = None

    def __init__(self, lease: Lease, state: Any = None) -> None:
        self.lease = lease
        self.state = state  # what the app's lifespan yielded
        self.checkpoint: Any = lease.checkpoint

    @property
    def job_id(self) -> str:
        return self.lease.id

    @property
    def job_type(self) -> str:
        return self.lease.type

    @property
    def queue(self) -> str:
        return self.lease.queue

    @property
    def tenant(self) -> str:
        return self.lease.tenant

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    @property
    def max_attempts(self) -> int:
        return self.lease.max_attempts

    @property
    def lease_token(self) -> str:
        return self.lease.token

    @property
    def created_at(self) -> datetime:
        return self.lease.created_at

    @property
    def fence(self) -> int:
        """A fencing token that rises with every execution of this job: an external system that keeps the highest one
        can reject writes of a stale execution."""
        return self.lease.epoch

    @property
    def tags(self) -> list[str]:
        return list(self.lease.tags or ())

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        if self._log is None:
            lease = self.lease
            self._log = _JobLog(
                log,
                {"job_id": lease.id, "job_type": lease.type, "queue": lease.queue, "attempt": lease.attempt},
            )
        return self._log

    def reject(self, code: str, message: str = "", *, context: dict[str, Any] | None = None) -> Reject:
        """`raise ctx.reject(...)`: the job must not be done; not a failure."""
        return Reject(code, message, context=context)

    def snooze(self, seconds: float) -> Snooze:
        """`return ctx.snooze(30)`: release the job and run it again after 30 seconds."""
        return Snooze(seconds)

    def wait_for_children(self) -> WaitForChildren:
        """`raise ctx.wait_for_children()`: run again when all child jobs have ended, however they ended. It occupies no
        slot meanwhile; `ctx.save` keeps what the next execution needs."""
        return WaitForChildren()


class Context(_Facts):
    _known: dict[str, Part] | None = None

    def __init__(self, lease: Lease, line: ContextBackend, state: Any = None, database: Database | None = None) -> None:
        super().__init__(lease, state)
        self._line, self._database = line, database
        self._unstored: dict[str, Any] = {}  # results of steps that may not be stored yet

    @functools.cached_property
    def _asking(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def progress(
        self,
        percent: float | None = None,
        step: str | None = None,
        *,
        eta_seconds: float | None = None,
        counters: dict[str, Any] | None = None,
        checkpoint: Any = None,
    ) -> None:
        """Stored in the database and sent to event streams; extends the lease.

        During an outage of the database it waits, as every report does, until the database is back or the lease may
        have expired; then it raises `LeaseLost`.
        """
        await self._report(
            percent=percent, step=step, eta_seconds=eta_seconds, counters=counters, checkpoint=checkpoint
        )

    async def counters(self, /, **by_name: Any) -> None:
        """Set these counters; others keep their values."""
        await self._report(counters=by_name)

    async def save(self, checkpoint: Any) -> None:
        """Store a checkpoint: the next attempt finds it in `ctx.checkpoint`."""
        await self._report(checkpoint=checkpoint)

    async def withdraw(self, job_id: str, reason: str = "canceled", *, message: str = "") -> Withdrawn:
        """End another job of the same tenant: it is canceled if its lifecycle allows that; else its retry is given up,
        or it fails without having run. The worker of a running job is asked to stop it.

        Returns its state now; `asked`: it is running, and will end soon.
        """
        if self.lost:
            raise lost_already(self.lease.id)
        self._check_outside("a withdrawal")
        asked = Withdrawal(id=self.lease.id, token=self.lease.token, target=job_id, reason=reason, message=message)
        return await self._line.withdraw(asked)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[JobTx]:
        """One transaction for the handler's writes, new jobs and, with `tx.complete(result)`, the job's completion.

        It commits at the end of the block if the lease is still held, else it raises `LeaseLost`. Keep it short: on
        SQLite it blocks all other writes. Reports are rejected inside it; other tasks of the handler may send them.
        """
        database, block = self._require_database("ctx.transaction()"), _Block()
        try:
            async with database.transaction(self.lease) as tx:
                _block.set(block)
                yield tx
        finally:
            block.open = False
        if tx.completed is not None:
            self.recorded_as = tx.completed
            await self._line.recorded(tx.completed)

    async def enqueue(self, job: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a child job: a job type and its arguments. Returns its handle."""
        return await self._require_database("ctx.enqueue()").enqueue(self.lease, job, args, kwargs)

    async def children(self) -> list[Any]:
        """The child jobs that are not pruned yet, oldest first, at most 1000."""
        return await self._require_database("ctx.children()").children(self.lease)

    async def cancel_job(self, job_id: str, reason: str = "canceled") -> bool:
        """Cancel another job. True if it is canceled, False if its worker was asked to stop it."""
        return await self._require_database("ctx.cancel_job()").cancel(self.lease, job_id, reason)

    def _require_database(self, what: str) -> Database:
        if self._database is None:
            raise no_database(what)
        self._check_outside(what)
        return self._database

    def _check_outside(self, what: str) -> None:
        if in_transaction():
            raise Invalid(
                f"job {self.lease.id}: {what} inside ctx.transaction() would deadlock; do it before or after the block",
                code="transaction_open",
            )

    async def parts(self, names: Sequence[str]) -> AsyncIterator[PartInHand]:
        """Iterates over the named parts that are not finished, in order. Each is completed when the next one is
        requested, unless the handler has failed or skipped it."""
        known = await self._parts()
        await self.keep_parts([Part(name=name) for name in dict.fromkeys(names) if name not in known])
        for place, name in enumerate(names):
            hand = PartInHand(self, known[name], place, len(names))
            if hand.finished:
                continue
            await hand.begin(step=name)
            yield hand
            await hand.leave(None, percent=100 * (place + 1) / len(names))

    @asynccontextmanager
    async def part(self, name: str, *, total: int | None = None) -> AsyncIterator[PartInHand]:
        """One part, also beside others: `async with ctx.part("720p", total=12) as part`.

        At the end of the block it is completed, unless the handler has failed or skipped it; an exception fails the
        part and is raised. If `part.finished` is true, an earlier execution has done it, and nothing is reported.
        """
        known = (await self._parts()).get(name) or Part(name=name)
        hand = PartInHand(self, known, units=total)
        await hand.begin()
        try:
            yield hand
        except BaseException as error:
            await hand.leave(error)
            raise
        await hand.leave(None)

    async def finished_parts(self) -> dict[str, Part]:
        """The parts that this or an earlier execution has completed or skipped, by name."""
        finished = (PartStatus.COMPLETED, PartStatus.SKIPPED)
        return {name: part for name, part in (await self._parts()).items() if part.status in finished}

    async def keep_parts(self, parts: Sequence[Part], percent: float | None = None, step: str | None = None) -> None:
        """Store several parts in one report, which costs less than `ctx.part` if each takes milliseconds only."""
        if parts:
            await self._report(parts=list(parts), percent=percent, step=step)
            (await self._parts()).update({part.name: part for part in parts})

    async def keep_part(self, part: Part, percent: float | None = None, step: str | None = None) -> None:
        await self.keep_parts([part], percent, step)

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function once per job: its result is stored, and later attempts return it without another call."""
        done = await self._step_done(name)
        if done is not None:
            return done["result"]
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
        return await self._finish_step(name, result)

    async def _step_done(self, name: str) -> dict[str, Any] | None:
        if name in self._unstored:  # an earlier call was interrupted while it stored the result
            await self._store_step(name)
        part = (await self._parts()).get(name)
        if part is None or part.status is not PartStatus.COMPLETED or not isinstance(part.data, dict):
            return None
        return part.data if "result" in part.data else None

    async def _finish_step(self, name: str, result: Any) -> Any:
        """Returns the result as the next attempt will see it, after the round trip through JSON."""
        self._unstored[name] = data = decode(encode({"result": result}, "part", max_bytes=PART_BYTES_MAX))
        await self._store_step(name)
        return data["result"]

    async def _store_step(self, name: str) -> None:
        done = Part(name=name, status=PartStatus.COMPLETED, percent=100, data=self._unstored[name])
        await self.keep_part(done)
        self._unstored.pop(name, None)

    async def _parts(self) -> dict[str, Part]:
        async with self._asking:  # concurrent parts share one answer
            if self._known is None:
                first = self.lease.epoch == 1  # there was no earlier execution
                self._known = {} if first else {part.name: part for part in await self._line.parts(self.lease.id)}
        return self._known

    async def _report(self, **fields: Any) -> None:
        if self.lost:
            raise lost_already(self.lease.id)
        self._check_outside("a report")
        await self._line.progress(Progress(id=self.lease.id, token=self.lease.token, **fields))
        if fields.get("checkpoint") is not None:
            self.checkpoint = fields["checkpoint"]


def lost_already(job_id: str) -> LeaseLost:
    return LeaseLost(f"job {job_id}: the lease is lost; stop the handler")


class SyncContext(_Facts):
    """The same for a sync handler: its calls block the handler's thread."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._wrapped, self._loop = context, loop
        super().__init__(context.lease, context.state)

    def __getattribute__(self, name: str) -> Any:
        if name in _SHARED:  # the worker sets these on the async context
            return getattr(object.__getattribute__(self, "_wrapped"), name)
        return object.__getattribute__(self, name)

    progress = blocking(Context.progress)
    counters = blocking(Context.counters)
    save = blocking(Context.save)
    withdraw = blocking(Context.withdraw)
    finished_parts = blocking(Context.finished_parts)
    keep_parts = blocking(Context.keep_parts)
    enqueue = blocking(Context.enqueue)
    children = blocking(Context.children)
    cancel_job = blocking(Context.cancel_job)

    @contextmanager
    def transaction(self) -> Iterator[SyncJobTx]:
        with self._entered(self._wrapped.transaction()) as tx:
            yield SyncJobTx(tx, self._wait)

    @contextmanager
    def part(self, name: str, *, total: int | None = None) -> Iterator[SyncPartInHand]:
        with self._entered(self._wrapped.part(name, total=total)) as part:
            yield SyncPartInHand(part, self._wait)

    def parts(self, names: Sequence[str]) -> Iterator[SyncPartInHand]:
        each = self._wrapped.parts(names)
        while (part := self._wait(_next(each))) is not None:
            yield SyncPartInHand(part, self._wait)

    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        done = self._wait(self._wrapped._step_done(name))
        if done is not None:
            return done["result"]
        result = function(*args, **kwargs)  # in the handler's thread
        if inspect.iscoroutine(result):
            result = self._wait(result)
        return self._wait(self._wrapped._finish_step(name, result))

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @contextmanager
    def _entered(self, held: AbstractAsyncContextManager[_T]) -> Iterator[_T]:
        entered, block = self._wait(_enter(held))
        _block.set(block)  # in the handler's thread
        try:
            yield entered
        except BaseException as error:
            self._wait(_leave(held, error))
            raise
        self._wait(_leave(held, None))


_SHARED = frozenset(("cancel_requested", "lost", "stopping", "checkpoint", "metrics"))


async def _next(each: AsyncIterator[PartInHand]) -> PartInHand | None:
    return await anext(each, None)


async def _enter(held: AbstractAsyncContextManager[_T]) -> tuple[_T, _Block | None]:
    return await held.__aenter__(), _block.get()


async def _leave(held: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    """Raise the error of the database instead of the one that it caused."""
    trace = None if error is None else error.__traceback__
    await held.__aexit__(None if error is None else type(error), error, trace)


Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
ErrorHook = Callable[[Context, BaseException], Awaitable[None] | None]
