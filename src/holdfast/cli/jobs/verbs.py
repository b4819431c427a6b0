"""What `cancel` and `redrive` do to each of a page of jobs, in one transaction; a rehearsal is one that is undone."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.errors import HoldfastError, StoreError
from holdfast.lifecycle import FINAL, Actor, State

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.engine.rules import Rules
    from holdfast.store import Tx


class Outcome(NamedTuple):
    """What became of one job: `what` in a word; the job that was made of it; why it was refused."""

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


class Verb(Protocol):
    """`states` are those it moves jobs from where nobody says which."""

    @property
    def name(self) -> str: ...

    @property
    def states(self) -> tuple[State, ...]: ...

    async def one(self, tx: Tx, rules: Rules, job_id: str) -> Outcome: ...


class Cancel:
    name = "cancel"
    states = tuple(state for state in State if state not in FINAL)

    def __init__(self, options: argparse.Namespace) -> None:
        self._reason = options.reason

    async def one(self, tx: Tx, rules: Rules, job_id: str) -> Outcome:
        from holdfast.engine.cancel import cancel

        answer = await cancel(tx, rules, job_id, actor=Actor.API, reason=self._reason)
        return Outcome(job_id, "canceled" if answer.canceled else "cancel_requested")


class Redrive:
    """A key made of the old job's id keeps a second redrive, or one begun again half-way, from making a second job."""

    name = "redrive"
    states = (State.DEAD,)

    def __init__(self, options: argparse.Namespace) -> None:
        self._again = options.again

    async def one(self, tx: Tx, rules: Rules, job_id: str) -> Outcome:
        from holdfast.engine.redrive import redrive

        await _know_lifecycle(tx, rules, job_id)
        key = None if self._again else f"redrive:{job_id}"
        created = await redrive(tx, rules, job_id, idempotency_key=key)
        return Outcome(job_id, "already_redriven" if created.existed else "redriven", created.id)


async def _know_lifecycle(tx: Tx, rules: Rules, job_id: str) -> None:
    """A lifecycle that an app declared is not known here, but each of its jobs brings it along."""
    from holdfast.engine.read import get

    machine = (await rules.registry.snapshot(tx, (await get(tx, job_id)).policy)).machine
    if machine.name not in {known.name for known in rules.lifecycles}:
        rules.lifecycles.declare(machine)


class _Rehearsed(Exception):
    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes


async def carry_out(engine: Engine, verb: Verb, job_ids: list[str], *, rehearse: bool) -> list[Outcome]:
    async def work(tx: Tx) -> list[Outcome]:
        outcomes = [await _outcome(verb, tx, engine.rules, job_id) for job_id in job_ids]
        if rehearse:
            raise _Rehearsed(outcomes)
        return outcomes

    try:
        return await engine.store.write(work)
    except _Rehearsed as undone:
        return [outcome._replace(new_id=None) if outcome.what == "redriven" else outcome for outcome in undone.outcomes]


async def _outcome(verb: Verb, tx: Tx, rules: Rules, job_id: str) -> Outcome:
    try:
        return await verb.one(tx, rules, job_id)
    except StoreError:
        raise
    except HoldfastError as refusal:
        return Outcome(job_id, "refused", refusal=refusal)
