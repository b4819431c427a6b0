"""The database as a handler sees it, if its worker has one: a worker that claims from a server does not."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from holdfast.errors import Invalid
from holdfast.model import Lease
from holdfast.model.reports import Withdrawn
from holdfast.worker.blocking import Wait, blocking
from holdfast.worker.outcomes import Recorded


class JobTx(Protocol):
    """A transaction of a handler. It commits only if the lease is still held."""

    alone: bool
    lock_seconds: float | None
    lock_errors: tuple[type[Exception], ...]

    @property
    def completed(self) -> Recorded | None:
        """The completion of the job in this transaction, if any."""
        ...

    async def all(self, /, query: Any, *, limit: int | None = None, **params: Any) -> list[Any]:
        """The rows of a query."""
        ...

    async def one(self, /, query: Any, **params: Any) -> Any:
        """The first row, or None."""
        ...

    async def run(self, /, query: Any, **params: Any) -> None:
        """A write without a result."""
        ...

    async def flush(self) -> None: ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Rolls back to its beginning if the block raises; the transaction can go on."""
        ...

    async def call(self, hook: Coroutine[Any, Any, Any], seconds: float, blocked: Callable[[float], None]) -> Any: ...

    async def wait_for_locks(self) -> None: ...

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None: ...

    async def enqueue(self, job: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a child job when the transaction commits. Returns its handle."""
        ...

    async def wake(self, job_id: str) -> bool:
        """Make another job claimable before its time."""
        ...

    async def cancel(self, job_id: str, reason: str = "canceled") -> bool:
        """Cancel another job. True if it is canceled with this transaction, False if its worker is asked to stop it."""
        ...

    async def withdraw(self, job_id: str, reason: str = "canceled", *, message: str = "") -> Withdrawn:
        """End another job with this transaction; see `Context.withdraw`."""
        ...

    async def hold(self) -> None:
        """Lock this job now and not only right before the commit; raises `LeaseLost` if the lease is lost. For a short
        transaction that also writes rows which transitions of the job write: those lock the job first."""
        ...

    async def complete(self, result: Any = None) -> None:
        """Complete this job with this transaction; the handler's return value is ignored then."""
        ...


class Database(Protocol):
    def transaction(self, lease: Lease) -> AbstractAsyncContextManager[JobTx]: ...

    async def enqueue(self, lease: Lease, job: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    async def children(self, lease: Lease) -> list[Any]: ...

    async def cancel(self, lease: Lease, job_id: str, reason: str) -> bool: ...


def no_database(what: str) -> Invalid:
    return Invalid(
        f"{what} needs the database, but this worker is connected to a server: use a guard or an effect of the job "
        "type, which run in the server, or declare the type with needs_database=True, for workers on the database",
        code="no_database",
    )


class SyncJobTx:
    """The same for a sync handler."""

    def __init__(self, tx: JobTx, wait: Wait) -> None:
        self._wrapped, self._wait = tx, wait

    all = blocking(JobTx.all)
    one = blocking(JobTx.one)
    run = blocking(JobTx.run)
    enqueue = blocking(JobTx.enqueue)
    wake = blocking(JobTx.wake)
    cancel = blocking(JobTx.cancel)
    withdraw = blocking(JobTx.withdraw)
    hold = blocking(JobTx.hold)
    complete = blocking(JobTx.complete)
