"""The role of this process, shown by PostgreSQL in `pg_stat_activity`."""

from __future__ import annotations

_named = {"role": "app"}  # a process of the user that enqueues


def name_process(role: str) -> None:
    """New connections are named `holdfast worker`, `holdfast server` and so on."""
    _named["role"] = role


def application_name() -> str:
    return f"holdfast {_named['role']}"
