"""What this process is for: PostgreSQL shows it in `pg_stat_activity`."""

from __future__ import annotations

_named = {"role": "app"}  # the user's own process, which enqueues


def name_process(role: str) -> None:
    """From now on its connections are called `holdfast worker`, `holdfast server` and so on."""
    _named["role"] = role


def application_name() -> str:
    return f"holdfast {_named['role']}"
