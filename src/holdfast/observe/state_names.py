"""The name of a state in its lifecycle, as operators see it."""

from __future__ import annotations

from holdfast.errors import UnknownName
from holdfast.lifecycle import Lifecycles, State


def state_name(lifecycles: Lifecycles, lifecycle: str, state: str) -> str:
    """The stored state if this process does not have the lifecycle."""
    try:
        return lifecycles[lifecycle].words.get(State(state), str(state))
    except UnknownName:
        return str(state)
