"""Markers for the moves of lifecycles: states and bits as literals."""

from __future__ import annotations

from holdfast.lifecycle import BIT, Actor, State
from holdfast.lifecycle.machine import read_moves
from holdfast.lifecycle.states import CANON
from holdfast.store.render.dialects import Text

# The worker stays, as that of the last lease. The event of the claim has the rest, which would make the row longer.
_LEASE_ENDED = "lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL"
_CANON = read_moves(CANON)


def moves_named(wanted: str) -> tuple[list[State], list[State]]:
    """The source and target states of `claim`, `fail>dead` or `cancel by client`, in stable order."""
    words, _, actor = wanted.partition(" by ")
    verb, _, target = words.partition(">")
    moves = [
        move
        for move in _CANON
        if move.verb == verb and (not target or move.target == target) and (not actor or Actor(actor) in move.actors)
    ]
    if not moves:
        raise KeyError(f"no move is called {wanted!r}")
    return list(dict.fromkeys(m.source for m in moves)), list(dict.fromkeys(m.target for m in moves))


def _from(wanted: str) -> str:
    sources, _ = moves_named(wanted)
    literals = [f"'{state}'" for state in sources]
    return f"= {literals[0]}" if len(literals) == 1 else f"IN ({', '.join(literals)})"


def _to(wanted: str) -> str:
    _, targets = moves_named(wanted)
    if len(targets) != 1:
        raise KeyError(f"{wanted!r} can lead to {targets}; say which")
    return f"'{targets[0]}'"


def _bit(pair: str) -> str:
    source, _, target = pair.partition(">")
    return str(BIT[State(source), State(target)])


SHARED: dict[str, Text] = {
    "from": _from,
    "to": _to,
    "bit": _bit,
    "lease ended": _LEASE_ENDED,
    "running": "holdfast_jobs.state = 'running'",
}
