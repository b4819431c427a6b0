"""Exit codes of commands."""

from __future__ import annotations

from holdfast.errors import Conflict, HoldfastError, Invalid, KeyReused, NotFound

FAILED, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4
PIPE_CLOSED = 141  # the shell's exit code for SIGPIPE


def code_of_signal(number: int) -> int:
    """As in a shell: 130 for Ctrl-C."""
    return 128 + number


def code_of(error: HoldfastError) -> int:
    match error:
        case Conflict() | KeyReused():
            return CONFLICT
        case Invalid():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case _:
            return FAILED
