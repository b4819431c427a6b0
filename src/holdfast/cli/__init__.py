"""The `holdfast` command line: one file per group of commands."""

from __future__ import annotations

INTERRUPTED = 130  # the shell's exit code for SIGINT


def main(arguments: list[str] | None = None) -> int:
    """Imports happen inside the `try`, so that an early Ctrl-C prints no traceback."""
    try:
        from holdfast.cli.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
