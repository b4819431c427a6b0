"""States in the words of the lifecycle: as an operator sees them everywhere else."""

from __future__ import annotations

from typing import overload

from holdfast.errors import UnknownName
from holdfast.lifecycle import Lifecycles, State


@overload
def word(lifecycles: Lifecycles, lifecycle: str, state: str) -> str: ...
@overload
def word(lifecycles: Lifecycles, lifecycle: str, state: str | None) -> str | None: ...
def word(lifecycles: Lifecycles, lifecycle: str, state: str | None) -> str | None:
    """The stored word where this process does not know the lifecycle."""
    if state is None:
        return None
    try:
        return lifecycles[lifecycle].words.get(State(state), str(state))
    except UnknownName:
        return str(state)
