"""What commands share that go on until they are told to stop: their log, and how they are told."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from holdfast.observe.logs import Logs, configure, installed
from holdfast.settings import Settings, secrets_in, wants_colour

log = logging.getLogger("holdfast")


def log_as(settings: Settings) -> None:
    """Called before an app is loaded, and again with what the app says: most often the same."""
    wanted = Logs(settings.log_format, settings.log_level, settings.log_jobs, secrets_in(settings), wants_colour())
    if (log := installed()) is None or log.logs != wanted:
        configure(wanted)


def stop_on_signals(stop: asyncio.Event, *signals: signal.Signals, waits_for: str = "the jobs that run") -> None:
    """The first one sets `stop`, the second ends the process at once, whoever else has set `stop` in between."""
    heard: list[signal.Signals] = []

    def signalled(number: signal.Signals) -> None:
        if heard:
            os._exit(1)
        heard.append(number)
        log.info("stopping when %s have ended; a second signal ends it at once", waits_for)
        stop.set()

    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, signalled, number)
