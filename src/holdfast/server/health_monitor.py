"""Checks the health of the database periodically, so that health checks respond without a query."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.reads.health import SystemHealth
from holdfast.errors import HoldfastError
from holdfast.model.reports import Fleet
from holdfast.outage_log import LoopFailures
from holdfast.settings import Settings
from holdfast.store.migrate import dialect_of, sqlite_path
from holdfast.wire import StorageView

EVERY_SECONDS = 2.0
SETTINGS_SECONDS = 60.0  # interval of checking the database settings
EXTENSIONS_SECONDS = 10.0  # interval of checking for missing extensions
STALE_SECONDS = 5.0  # an older result is ignored

log = logging.getLogger(__name__)


class HealthMonitor:
    def __init__(
        self, engine: Engine, clock: Clock, folder: Path, *, tell: Callable[[Fleet], None] = lambda _: None
    ) -> None:
        """`tell`: called with the fleet of maintaining processes."""
        self._engine, self._clock, self._folder, self._tell = engine, clock, folder, tell
        self._heard_at: float | None = None
        self._failures = LoopFailures("ask the database for its health", log, often=True)
        self.vitals: SystemHealth | None = None
        self.storage: StorageView | None = None
        self.weak_settings: list[str] = []
        self._asked_settings_at = -math.inf
        self.missing_extensions: dict[str, int] = {}
        self._asked_extensions_at = -math.inf

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(STALE_SECONDS):
                    await self.beat()
                self._failures.succeeded()
            except (HoldfastError, TimeoutError) as error:
                self._tell(Fleet())
                self._failures.failed(error)
            await self._clock.sleep(EVERY_SECONDS)

    async def beat(self) -> None:
        self.storage = await asyncio.to_thread(_storage, self._folder)
        vitals = await self._engine.reads.health()
        self._heard_at = self._clock.monotonic()
        try:
            if self._heard_at - self._asked_settings_at >= SETTINGS_SECONDS:
                self.weak_settings, self._asked_settings_at = await self._engine.reads.weak_settings(), self._heard_at
            if self._heard_at - self._asked_extensions_at >= EXTENSIONS_SECONDS:
                self.missing_extensions = await self._engine.reads.missing_extensions()
                self._asked_extensions_at = self._heard_at
        finally:
            self.vitals = vitals  # published together with the first settings check
        others = vitals.maintaining
        self._tell(Fleet(others + 1, others))

    @property
    def alive(self) -> bool:
        """The last query succeeded recently."""
        return self._heard_at is not None and self._clock.monotonic() - self._heard_at <= STALE_SECONDS

    def complaint(self) -> str | None:
        """Why the server is not ready, if it is not."""
        if not self.alive:
            return f"no response from the database within {STALE_SECONDS:g} s"
        if self.vitals is not None and not self.vitals.current:
            return "the database needs `holdfast migrate`"
        return None


def _storage(folder: Path) -> StorageView | None:
    """Of the file system of the folder, which need not exist."""
    for place in (folder, *folder.absolute().parents):
        try:
            usage = shutil.disk_usage(place)
            return StorageView(usage.total, usage.free)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def folder_of(settings: Settings) -> Path:
    """The folder of the SQLite file, else the data directory."""
    return sqlite_path(settings.url).parent if dialect_of(settings.url) == "sqlite" else Path(settings.data_dir)
