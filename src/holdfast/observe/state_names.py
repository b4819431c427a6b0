"""The name of a state in its lifecycle, as operators see it."""

from __future__ import annotations

from typing import overload

from holdfast.errors import UnknownName
from holdfast.lifecycle import Lifecycles, State


@overload
def state_name(lifecycles: Lifecycles, lifecycle: str, state: str) -> str: ...
@overload
def state_name(lifecycles: Lifecycles, lifecycle: str, state: str | None) -> str | None: ...
def state_name(lifecycles: Lifecycles, lifecycle: str, state: str | None) -> str | None:
    """The stored state if this process does not have the lifecycle."""
    if state is None:
        return None
    try:
        return lifecycles[lifecycle].words.get(State(state), str(state))
    except UnknownName:
        return str(state)
