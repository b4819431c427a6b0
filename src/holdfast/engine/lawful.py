"""Asks the lifecycle before the database has to refuse, so that the error can say more."""

from __future__ import annotations

from holdfast.errors import IllegalMove
from holdfast.lifecycle import Actor, Machine, State


def require_move(machine: Machine, verb: str, job_id: str, source: State, target: State, actor: Actor) -> None:
    move = machine.move(verb, source, target)
    if move is None:
        raise IllegalMove(
            f"job {job_id}: lifecycle {machine.name!r} has no {verb} from {machine.words[source]!r}; "
            f"`holdfast lifecycle show {machine.name}` lists its moves",
            job_id=job_id,
            verb=verb,
        )
    if actor not in move.actors:
        allowed = ", ".join(sorted(move.actors))
        raise IllegalMove(
            f"job {job_id}: {actor} may not {verb} a job that is {machine.words[source]!r}; only {allowed} may",
            code="actor_not_allowed",
            job_id=job_id,
            verb=verb,
        )
