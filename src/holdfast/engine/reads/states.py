"""Filters by state and status: translate the names that a caller gives into stored states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.errors import UnknownName
from holdfast.lifecycle import STATUS, Machine, State

STATUSES = tuple(dict.fromkeys(STATUS.values()))
ANY_LIFECYCLE = "*"


def state_filter(
    lifecycles: Iterable[Machine],
    *,
    state: str | None = None,
    status: str | None = None,
    otherwise: Iterable[State] = (),
) -> dict[str, Any]:
    """The fields `states` and `lifecycle_states` of a `Filter`; `otherwise` applies if neither argument is given.

    Both are names separated by commas. A status is one of the six. A state is a state name of a lifecycle, which
    selects jobs of the lifecycles with that name, or one of the eight stored states, which selects jobs of all others.
    """
    if state is None and status is None:
        stored = list(otherwise)
        return {"states": sorted(stored) or None}
    allowed = set(State) if status is None else {found for word in status.split(",") for found in _of_status(word)}
    if state is None:
        return {"states": sorted(allowed)}
    pairs = {pair for word in state.split(",") for pair in _pairs(lifecycles, word)}
    states = sorted({found for _, found in pairs} & allowed)
    if all(lifecycle == ANY_LIFECYCLE for lifecycle, _ in pairs):
        return {"states": states}
    return {"states": states, "lifecycle_states": sorted(f"{lifecycle} {found}" for lifecycle, found in pairs)}


def _of_status(word: str) -> list[State]:
    if word.upper() not in STATUSES:
        raise UnknownName.of("status", word[:80], list(STATUSES))
    return [state for state in State if STATUS[state] == word.upper()]


def _pairs(lifecycles: Iterable[Machine], word: str) -> list[tuple[str, State]]:
    found = [(machine.name, state) for machine in lifecycles for state, own in machine.words.items() if own == word]
    if word in list(State):
        if all(state == word for _, state in found):
            return [(ANY_LIFECYCLE, State(word))]
        others = {machine.name for machine in lifecycles} - {name for name, _ in found}
        return [*found, *((name, State(word)) for name in others)]
    if not found:
        known = [*map(str, State), *(own for machine in lifecycles for own in machine.words.values())]
        raise UnknownName.of("state", word[:80], list(dict.fromkeys(known)))
    return found
