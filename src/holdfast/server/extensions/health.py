"""Health fields of extensions, refreshed periodically so that /health responds at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.reads.extension_checks import CheckFailed, Probe
from holdfast.outage_log import LoopFailures

EVERY_SECONDS = 10.0
BYTES_MAX = 10_240  # of one field
FAILED = {"status": "failed"}  # details are in the log: /health is public

log = logging.getLogger(__name__)


class ExtensionHealth:
    def __init__(self, engine: Engine, clock: Clock, probes: Sequence[Probe]) -> None:
        self._engine, self._clock, self.probes = engine, clock, probes
        self._failing: set[tuple[str, str]] = set()
        self._failures = LoopFailures("ask extensions for their health", log)
        self.fields: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for probe in self.probes:
                try:
                    await self.ask(probe)
                    self._failures.succeeded()
                except Exception as error:
                    self._failures.failed(error)
            await self._clock.sleep(EVERY_SECONDS)

    async def ask(self, probe: Probe) -> None:
        answer = await self._engine.reads.ask_extension(probe)
        failure = answer.says if isinstance(answer, CheckFailed) else None
        value: Any = FAILED
        if failure is None:
            try:
                text = msgspec.json.encode(answer)
                value = msgspec.json.decode(text)
                failure = f"it has {len(text)} bytes, and {BYTES_MAX} are allowed" if len(text) > BYTES_MAX else None
            except (TypeError, ValueError) as error:
                failure = f"it is not JSON: {error}"
        self._note(probe, failure)
        self.fields.setdefault(probe.extension, {})[probe.name] = value if failure is None else FAILED

    def _note(self, probe: Probe, failure: str | None) -> None:
        """Log once when it starts to fail."""
        key = (probe.extension, probe.name)
        if failure is None:
            self._failing.discard(key)
        elif key not in self._failing:
            self._failing.add(key)
            log.warning("extension %s: the field %s of /health failed: %s", *key, failure)
