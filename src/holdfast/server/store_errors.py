"""Logs errors of the database and of object storage in full; clients see only the kind of error."""

from __future__ import annotations

import logging

from holdfast.clock import Clock
from holdfast.errors import StorageError, StoreError

PAUSE_SECONDS = 10.0

log = logging.getLogger(__name__)


class StoreErrorLog:
    """An outage fails every request: one in ten seconds is logged as a warning, the others at `debug`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until: dict[str, float] = {}  # by code

    def note(self, error: StoreError | StorageError, request_id: str, route: str) -> None:
        if error.full == error.message:  # the response has all details
            return
        now = self._clock.monotonic()
        quiet = now < self._quiet_until.get(error.code, now)
        if not quiet:
            self._quiet_until[error.code] = now + PAUSE_SECONDS
        log.log(logging.DEBUG if quiet else logging.WARNING, "request %s (%s): %s", request_id, route, error.full)
