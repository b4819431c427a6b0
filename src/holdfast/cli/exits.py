"""What a command's exit code means."""

from __future__ import annotations

from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound

FAILED, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4
INTERRUPTED, PIPE_CLOSED = 130, 141  # what a shell makes of SIGINT and SIGPIPE


def code_of(error: HoldfastError) -> int:
    match error:
        case Invalid():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case Conflict():
            return CONFLICT
        case _:
            return FAILED
