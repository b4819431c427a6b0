"""What a handler may ask and say while it runs. Async handlers get a `Context`, sync ones a `SyncContext`."""

from __future__ import annotations

import asyncio
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
from holdfast.worker.outcomes import Recorded, Reject, Snooze, WaitForChildren
from holdfast.worker.parts import PartInHand, SyncPartInHand
from holdfast.worker.transactions import Database, JobTx, SyncJobTx, no_database

_T = TypeVar("_T")
NO_METRICS = Metrics()
log = logging.getLogger("holdfast.job")


class _Block:
    """The block of a transaction, for as long as it is open."""

    open = True


# In the code inside the block and in the tasks that it starts, but not in those that run beside it.
_block: ContextVar[_Block | None] = ContextVar("holdfast_transaction", default=None)


def in_transaction() -> bool:
    """Whether this is code inside the block of a `ctx.transaction()`."""
    return (block := _block.get()) is not None and block.open


class ContextBackend(Protocol):
    """How a context talks to the runtime: directly, or over a pipe from a child process."""

    async def progress(self, report: Progress) -> None: ...

    async def parts(self, job_id: str) -> list[Part]: ...

    async def withdraw(self, asked: Withdrawal) -> Withdrawn: ...

    async def recorded(self, outcome: Recorded) -> None:
        """The handler has completed the job itself."""
        ...


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Every line carries the job's fields, and whatever the handler adds to them."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class _Facts:
    """What does not change while the handler runs, and the three flags that may."""

    def __init__(self, lease: Lease, state: Any = None) -> None:
        self.lease = lease
        self.state = state  # whatever the app's lifespan yielded
        self.cancel_requested = False
        self.lost = False
        self.stopping = False
        self.checkpoint: Any = lease.checkpoint
        self.recorded_as: Recorded | None = None  # the handler has completed the job in a transaction
        self.metrics = NO_METRICS  # those of the extension that defines the job type, by name
        self._log: _JobLog | None = None

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
    def fence(self) -> int:
        """Rises with every execution of this job: an outside system that keeps the highest one seen can refuse an
        execution that was thought dead."""
        return self.lease.epoch

    @property
    def tags(self) -> list[str]:
        return list(self.lease.tags or ())

    @property
    def created_at(self) -> datetime:
        return self.lease.created_at

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
        """`raise ctx.reject(...)`: a verdict, not a failure."""
        return Reject(code, message, context=context)

    def snooze(self, seconds: float) -> Snooze:
        """`return ctx.snooze(30)`: not now."""
        return Snooze(seconds)

    def wait_for_children(self) -> WaitForChildren:
        """`raise ctx.wait_for_children()`: run again when every job has ended whose parent this one is, however it
        ended. No slot is held meanwhile; `ctx.save` keeps what the next execution needs."""
        return WaitForChildren()


class Context(_Facts):
    def __init__(self, lease: Lease, line: ContextBackend, state: Any = None, database: Database | None = None) -> None:
        super().__init__(lease, state)
        self._line, self._database = line, database
        self._known: dict[str, Part] | None = None
        self._asking = asyncio.Lock()
        self._unstored: dict[str, Any] = {}  # results of steps that ran, while they are not known to be stored

    async def progress(
        self,
        percent: float | None = None,
        step: str | None = None,
        *,
        eta_seconds: float | None = None,
        counters: dict[str, Any] | None = None,
        checkpoint: Any = None,
    ) -> None:
        """Kept in the database and told to whoever watches; extends the lease.

        As with everything that is reported: while the database is away it waits, until that is back or the lease may be
        over. Then it raises `LeaseLost`.
        """
        await self._report(
            percent=percent, step=step, eta_seconds=eta_seconds, counters=counters, checkpoint=checkpoint
        )

    async def counters(self, **by_name: Any) -> None:
        """Set named counters; the others stay as they are."""
        await self._report(counters=by_name)

    async def save(self, checkpoint: Any) -> None:
        """Keep this for the next attempt, which finds it in `ctx.checkpoint`."""
        await self._report(checkpoint=checkpoint)

    async def withdraw(self, job_id: str, reason: str = "canceled", *, message: str = "") -> Withdrawn:
        """End the waiting work of another job of the same tenant: it is canceled where its lifecycle has that move;
        else its retry is given up, or it ends in failure without having run.

        The answer says where it is now; of a job that runs, `asked` says whether its worker was told to stop it.
        """
        if self.lost:
            raise lost_already(self.lease.id)
        self._check_outside("a withdrawal")
        asked = Withdrawal(id=self.lease.id, token=self.lease.token, target=job_id, reason=reason, message=message)
        return await self._line.withdraw(asked)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[JobTx]:
        """One transaction for own writes, new jobs and, with `tx.complete(result)`, the end of this job.

        It is committed at the end of the block, and only while the job is held: `LeaseLost` otherwise. Keep it short:
        on SQLite nothing else is written meanwhile. Reports are refused inside it; other tasks of the handler go on.
        """
        database, block = self._reach("ctx.transaction()"), _Block()
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
        """A job whose parent this one is: of a job type with its arguments. The answer is its handle."""
        return await self._reach("ctx.enqueue()").enqueue(self.lease, job, args, kwargs)

    async def children(self) -> list[Any]:
        """The jobs whose parent this one is, the oldest first, as far as they are not pruned: at most 1000."""
        return await self._reach("ctx.children()").children(self.lease)

    async def cancel_job(self, job_id: str, reason: str = "canceled") -> bool:
        """Another job. True if it is canceled, False if its worker was asked to stop it."""
        return await self._reach("ctx.cancel_job()").cancel(self.lease, job_id, reason)

    def _reach(self, what: str) -> Database:
        if self._database is None:
            raise no_database(what)
        self._check_outside(what)
        return self._database

    def _check_outside(self, what: str) -> None:
        if in_transaction():
            raise Invalid(
                f"job {self.lease.id}: {what} inside ctx.transaction() would wait for that transaction for ever; do it "
                "before or after",
                code="transaction_open",
            )

    async def parts(self, names: Sequence[str]) -> AsyncIterator[PartInHand]:
        """The named parts that are not finished yet, in order. One is finished when the next is asked for, unless the
        handler has said otherwise."""
        known = await self._parts()
        await self._announce([Part(name=name) for name in dict.fromkeys(names) if name not in known])
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

        At the end of the block it is completed, unless the handler has said otherwise; what is raised in it fails the
        part and goes on. Where `part.finished` is true, an earlier execution has done it, and nothing is reported.
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

    async def keep_part(self, part: Part, percent: float | None = None, step: str | None = None) -> None:
        await self._report(parts=[part], percent=percent, step=step)
        (await self._parts())[part.name] = part

    async def _announce(self, parts: list[Part]) -> None:
        """All at once, so that whoever watches sees them in the handler's order, and how many are still to come."""
        if parts:
            await self._report(parts=parts)
            (await self._parts()).update({part.name: part for part in parts})

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function once in the life of the job: its result is stored, and the next attempt gets that."""
        done = await self._step_done(name)
        if done is not None:
            return done["result"]
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
        return await self._finish_step(name, result)

    async def _step_done(self, name: str) -> dict[str, Any] | None:
        if name in self._unstored:  # whoever called it before was interrupted while its result was being stored
            await self._store_step(name)
        part = (await self._parts()).get(name)
        if part is None or part.status is not PartStatus.COMPLETED or not isinstance(part.data, dict):
            return None
        return part.data if "result" in part.data else None

    async def _finish_step(self, name: str, result: Any) -> Any:
        """The result as the next attempt would see it, so that a handler is surprised now and not then."""
        self._unstored[name] = data = decode(encode({"result": result}, "part", max_bytes=PART_BYTES_MAX))
        await self._store_step(name)
        return data["result"]

    async def _store_step(self, name: str) -> None:
        done = Part(name=name, status=PartStatus.COMPLETED, percent=100, data=self._unstored[name])
        await self.keep_part(done)
        self._unstored.pop(name, None)

    async def _parts(self) -> dict[str, Part]:
        async with self._asking:  # parts that are begun together know of each other
            if self._known is None:
                first = self.lease.epoch == 1  # nobody can have left any
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
    return LeaseLost(f"job {job_id}: the lease is lost; stop, and leave the job to its next worker")


class SyncContext(_Facts):
    """The same, for a handler in a thread: what is awaited there is waited for here."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context, self._loop = context, loop
        super().__init__(context.lease, context.state)

    def __getattribute__(self, name: str) -> Any:
        if name in _SHARED:  # the runtime writes these on the context it made
            return getattr(object.__getattribute__(self, "_context"), name)
        return object.__getattribute__(self, name)

    def progress(
        self,
        percent: float | None = None,
        step: str | None = None,
        *,
        eta_seconds: float | None = None,
        counters: dict[str, Any] | None = None,
        checkpoint: Any = None,
    ) -> None:
        self._wait(
            self._context.progress(percent, step, eta_seconds=eta_seconds, counters=counters, checkpoint=checkpoint)
        )

    def counters(self, **by_name: Any) -> None:
        self._wait(self._context.counters(**by_name))

    def save(self, checkpoint: Any) -> None:
        self._wait(self._context.save(checkpoint))

    def withdraw(self, job_id: str, reason: str = "canceled", *, message: str = "") -> Withdrawn:
        return self._wait(self._context.withdraw(job_id, reason, message=message))

    @contextmanager
    def transaction(self) -> Iterator[SyncJobTx]:
        held = self._context.transaction()
        tx, block = self._wait(_entered_block(held))
        _block.set(block)  # in the handler's own thread
        try:
            yield SyncJobTx(tx, self._wait)
        except BaseException as error:
            self._wait(_left(held, error))
            raise
        self._wait(_left(held, None))

    def parts(self, names: Sequence[str]) -> Iterator[SyncPartInHand]:
        each = self._context.parts(names)
        while (part := self._wait(_next(each))) is not None:
            yield SyncPartInHand(part, self._wait)

    def enqueue(self, job: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._wait(self._context.enqueue(job, *args, **kwargs))

    def children(self) -> list[Any]:
        return self._wait(self._context.children())

    def cancel_job(self, job_id: str, reason: str = "canceled") -> bool:
        return self._wait(self._context.cancel_job(job_id, reason))

    @contextmanager
    def part(self, name: str, *, total: int | None = None) -> Iterator[SyncPartInHand]:
        held = self._context.part(name, total=total)
        part = self._wait(_entered(held))
        try:
            yield SyncPartInHand(part, self._wait)
        except BaseException as error:
            self._wait(_left(held, error))
            raise
        self._wait(_left(held, None))

    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        done = self._wait(self._context._step_done(name))
        if done is not None:
            return done["result"]
        result = function(*args, **kwargs)  # here, in the handler's own thread
        if inspect.iscoroutine(result):
            result = self._wait(result)
        return self._wait(self._context._finish_step(name, result))

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


_SHARED = frozenset(("cancel_requested", "lost", "stopping", "checkpoint", "metrics"))


async def _next(each: AsyncIterator[PartInHand]) -> PartInHand | None:
    return await anext(each, None)


async def _entered(held: AbstractAsyncContextManager[_T]) -> _T:
    return await held.__aenter__()


async def _entered_block(held: AbstractAsyncContextManager[_T]) -> tuple[_T, _Block | None]:
    return await held.__aenter__(), _block.get()


async def _left(held: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    """An error of the database's own comes in place of the one that it caused."""
    if error is None:
        await held.__aexit__(None, None, None)
    else:
        await held.__aexit__(type(error), error, error.__traceback__)


Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
ErrorHook = Callable[[Context, BaseException], Awaitable[None] | None]
