"""Bulk operations: cancel, wake or redrive many jobs in one transaction. A dry run is rolled back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.admin.audit import AuditedAction, record
from holdfast.engine.cancel import cancel
from holdfast.engine.context import EngineContext
from holdfast.engine.redrive import redrive, successors
from holdfast.engine.wake import wake
from holdfast.errors import HoldfastError, KeyReused, StoreError
from holdfast.lifecycle import FINAL, Actor, State
from holdfast.store import Tx

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine


class BulkOutcome(NamedTuple):
    """The outcome for one job, with the id of its redrive or the refusal."""

    job_id: str
    what: str
    new_id: str | None = None
    refusal: HoldfastError | None = None

    def view(self) -> dict[str, Any]:
        refusal = {"code": self.refusal.code, "message": self.refusal.message} if self.refusal else {}
        return {"jobId": self.job_id, "outcome": self.what, "newJobId": self.new_id, **refusal}

    def __str__(self) -> str:
        more = f" as {self.new_id}" if self.new_id else f": {self.refusal.message}" if self.refusal else ""
        return f"{self.job_id}\t{self.what.replace('_', ' ')}{more}"


class BulkCancel:
    name = "cancel"
    states = tuple(state for state in State if state not in FINAL)

    def __init__(self, reason: str = "canceled") -> None:
        self._reason = reason

    async def one(self, tx: Tx, ctx: EngineContext, job_id: str, place: int) -> BulkOutcome:
        answer = await cancel(tx, ctx, job_id, actor=Actor.API, reason=self._reason)
        return BulkOutcome(job_id, "canceled" if answer.canceled else "cancel_requested")


class BulkWake:
    name = "wake"
    states = (State.QUEUED, State.RETRYING)

    async def one(self, tx: Tx, ctx: EngineContext, job_id: str, place: int) -> BulkOutcome:
        return BulkOutcome(job_id, "woken" if await wake(tx, ctx, job_id) else "runs")


class RedriveRate(NamedTuple):
    """The first new job may run at `start`, and `per_second` of them in each second after it."""

    start: datetime
    per_second: float

    def at(self, place: int) -> datetime:
        return self.start + timedelta(seconds=place / self.per_second)


class BulkRedrive:
    """Redrives each job once, unless `again`: a repeat after an interruption skips jobs that were redriven.

    Two concurrent calls see no successor yet; an idempotency key made of the old job's id prevents a second one.
    """

    name = "redrive"
    states = (State.DEAD,)

    def __init__(self, *, again: bool = False, pace: RedriveRate | None = None) -> None:
        self._again, self._pace = again, pace

    async def one(self, tx: Tx, ctx: EngineContext, job_id: str, place: int) -> BulkOutcome:
        run_at = self._pace.at(place) if self._pace else None
        if self._again:
            return BulkOutcome(job_id, "redriven", (await redrive(tx, ctx, job_id, run_at=run_at)).id)
        if before := await successors(tx, job_id):
            return BulkOutcome(job_id, "already_redriven", before[-1])
        try:
            made = await redrive(tx, ctx, job_id, idempotency_key=f"redrive:{job_id}", run_at=run_at)
        except KeyReused as taken:  # by a concurrent call with another rate
            return BulkOutcome(job_id, "already_redriven", taken.fields["job_id"])
        return BulkOutcome(job_id, "already_redriven" if made.existed else "redriven", made.id)


# The `states` of a bulk verb: the jobs that it selects if the filter names no states.
BulkVerb = BulkCancel | BulkWake | BulkRedrive
Tell = Callable[[list[BulkOutcome]], AuditedAction]


async def carry_out(
    engine: Engine,
    verb: BulkVerb,
    job_ids: list[str],
    *,
    first: int = 0,
    rehearse: bool = False,
    tell: Tell | None = None,
) -> list[BulkOutcome]:
    """Apply the verb to each job in one transaction, with the audit entry that `tell` makes of the outcomes."""
    places = list(enumerate(job_ids, start=first))

    async def together(tx: Tx) -> list[BulkOutcome]:
        outcomes = [await _outcome(job_id, verb.one(tx, engine.ctx, job_id, place)) for place, job_id in places]
        if tell is not None:
            await record(tx, tell(outcomes))
        if rehearse:
            raise _Rehearsed(outcomes)
        return outcomes

    try:
        return await engine.store.write(together)
    except _Rehearsed as undone:
        return [outcome._replace(new_id=None) if outcome.what == "redriven" else outcome for outcome in undone.outcomes]


class _Rehearsed(Exception):
    def __init__(self, outcomes: list[BulkOutcome]) -> None:
        self.outcomes = outcomes


async def _outcome(job_id: str, work: Awaitable[BulkOutcome]) -> BulkOutcome:
    try:
        return await work
    except StoreError:
        raise
    except HoldfastError as refusal:
        return BulkOutcome(job_id, "refused", refusal=refusal)
