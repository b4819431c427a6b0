"""The command line: one file per group of commands."""

from __future__ import annotations

INTERRUPTED = 130  # what a shell makes of SIGINT


def main(arguments: list[str] | None = None) -> int:
    """Everything is loaded in here, where a Ctrl-C that comes early is no traceback."""
    try:
        from holdfast.cli.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
