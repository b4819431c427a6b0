"""A question before something that cannot be taken back; where there is no terminal to ask at, `--yes` is needed."""

from __future__ import annotations

import sys

from holdfast.errors import Invalid


def require_terminal(purpose: str, hint: str = "") -> None:
    if not sys.stdin.isatty():
        raise Invalid(f"--yes is needed to {purpose} when standard input is not a terminal{hint}")


def confirmed(question: str) -> bool:
    """Asked outside the event loop, where Ctrl-C is heard at once."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was done", file=sys.stderr)
    return False
