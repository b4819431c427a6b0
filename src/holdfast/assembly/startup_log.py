"""What a server or a worker logs at its start: what will be deleted, and settings that may lose data."""

from __future__ import annotations

import logging

from holdfast.engine import Engine, Retention
from holdfast.errors import StoreError
from holdfast.lifecycle import FINAL

DAY = 86_400

log = logging.getLogger(__name__)
_logged: set[str] = set()


async def log_startup_warnings(engine: Engine, retention: Retention) -> None:
    _log_once(logging.INFO, retention_text(retention))
    try:
        weak = await engine.reads.weak_settings()
    except StoreError as error:  # `/health` reports it when the database is reachable
        log.debug("cannot read the settings of the database: %s", error)
        return
    if weak:
        _log_once(logging.WARNING, f"durability of the database: {'; '.join(weak)} (details: `holdfast doctor`)")


def retention_text(retention: Retention) -> str:
    limits = dict(retention.limits())
    parts = [f"{state} after {_span(seconds)}" for state, seconds in limits.items()]
    if kept := [state.value for state in sorted(FINAL) if state not in limits]:
        parts.append(f"{', '.join(kept)} never")
    if retention.attempts is not None:
        parts.append(f"the records of their attempts after {_span(retention.attempts)}")
    return f"finished jobs are deleted: {'; '.join(parts)} (HOLDFAST_RETAIN_*_SECONDS)"


def _log_once(level: int, text: str) -> None:
    if text not in _logged:
        _logged.add(text)
        log.log(level, "%s", text)


def _span(seconds: float) -> str:
    """In days, if they are whole."""
    days = seconds / DAY
    return f"{days:g} days" if days >= 1 and days == int(days) else f"{seconds:g} seconds"
