"""What a server or a worker says at its start about the data it works on: once in each process."""

from __future__ import annotations

import logging

from holdfast.engine import Engine, Retention
from holdfast.errors import StoreError
from holdfast.lifecycle import FINAL

DAY = 86_400

log = logging.getLogger(__name__)
_said: set[str] = set()


async def log_startup_warnings(engine: Engine, retention: Retention) -> None:
    _say(logging.INFO, what_is_deleted(retention))
    try:
        weak = await engine.reads.weak_settings()
    except StoreError as error:  # `/health` says it when the database answers
        log.debug("the settings of the database could not be read: %s", error)
        return
    if weak:
        _say(
            logging.WARNING, f"the database may lose acknowledged jobs: {'; '.join(weak)}; `holdfast doctor` says more"
        )


def what_is_deleted(retention: Retention) -> str:
    limits = dict(retention.limits())
    said = [f"{state} after {_span(seconds)}" for state, seconds in limits.items()]
    if kept := [state.value for state in sorted(FINAL) if state not in limits]:
        said.append(f"{', '.join(kept)} never")
    return f"finished jobs are deleted: {'; '.join(said)} (HOLDFAST_RETAIN_SUCCEEDED_SECONDS and its like)"


def _say(level: int, text: str) -> None:
    if text not in _said:
        _said.add(text)
        log.log(level, "%s", text)


def _span(seconds: float) -> str:
    """In days where these are whole."""
    days = seconds / DAY
    return f"{days:g} days" if days >= 1 and days == int(days) else f"{seconds:g} seconds"
