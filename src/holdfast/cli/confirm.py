"""Confirmation prompts for destructive commands. Without a terminal, `--yes` is required."""

from __future__ import annotations

import sys

from holdfast.errors import Invalid


def require_terminal(purpose: str, hint: str = "") -> None:
    if not sys.stdin.isatty():
        raise Invalid(f"--yes is needed to {purpose} when standard input is not a terminal{hint}")


def confirmed(question: str) -> bool:
    """Called outside the event loop, so that Ctrl-C works at once."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was done", file=sys.stderr)
    return False
