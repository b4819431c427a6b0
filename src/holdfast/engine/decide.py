"""Decide what follows a failed or lost attempt: retry, dead or canceled. Pure functions of row, policy and jitter."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.registry import Snapshot
from holdfast.lifecycle import Actor, Machine, Policy, State, Treatment
from holdfast.store import Row


class Decision(NamedTuple):
    """`detour`: the lifecycle reaches dead only through retrying: two transitions and events in one transaction.
    `policy`: of a retry; it says which parts the next attempt keeps."""

    to: State
    reason: str | None
    delay_seconds: float = 0
    detour: bool = False
    policy: Policy | None = None


def after_failure(
    row: Row, snapshot: Snapshot, code: str, *, permanent: bool, retry_after: float | None, jitter: float
) -> Decision:
    """Dead if the error is permanent or attempts are used up; else retrying. Never retrying after a cancel request."""
    machine, policy = snapshot.machine, snapshot.policy
    if row["cancel_requested_at"] is not None:
        return after_cancel(row, machine)
    treatment = Treatment.PERMANENT if permanent else policy.treat(code)
    spent = row["attempt"] >= row["max_attempts"]
    if treatment is Treatment.PERMANENT or spent or not machine.move("fail", State.RUNNING, State.RETRYING):
        return _dead(machine, "fail", code)
    delay = retry_after if retry_after is not None else policy.backoff(row["failures"] + 1, treatment, jitter)
    return Decision(State.RETRYING, code, delay, policy=policy)


def after_loss(row: Row, snapshot: Snapshot, why: str, *, jitter: float) -> Decision:
    """After a lost lease or a timeout. The first loss is retried at once; after `max_lost` losses the job is poison."""
    machine, policy = snapshot.machine, snapshot.policy
    if row["cancel_requested_at"] is not None:
        if machine.move("reap", State.RUNNING, State.CANCELED) is None:
            return _dead(machine, "reap", row["reason"])
        return Decision(State.CANCELED, "cancel_not_obeyed" if row["over_cancel"] else why)
    if is_loss(why) and row["lost"] + 1 >= policy.max_lost:
        return _dead(machine, "reap", "poison")
    if row["attempt"] >= row["max_attempts"] or not machine.move("reap", State.RUNNING, State.RETRYING):
        return _dead(machine, "reap", "E_TIMEOUT")
    if is_loss(why) and row["lost"] == 0:
        return Decision(State.RETRYING, why, policy=policy)
    tries = max(1, row["lost"] + row["failures"])
    return Decision(State.RETRYING, why, policy.backoff(tries, Treatment.TRANSIENT, jitter), policy=policy)


def is_loss(why: str) -> bool:
    """The worker was lost or does not obey, rather than slower than a time limit of the policy."""
    return why in ("lease_expired", "worker_died", "cancel_not_obeyed")


def after_cancel(row: Row, machine: Machine) -> Decision:
    """The worker has stopped a job whose cancel was requested: canceled; where the lifecycle has no cancel by workers,
    dead, with the reason of the request."""
    if machine.allows("cancel", State.RUNNING, State.CANCELED, Actor.WORKER):
        return Decision(State.CANCELED, None)
    return _dead(machine, "fail", row["reason"])


def _dead(machine: Machine, verb: str, reason: str) -> Decision:
    return Decision(State.DEAD, reason, detour=machine.move(verb, State.RUNNING, State.DEAD) is None)
