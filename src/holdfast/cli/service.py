"""What commands share that go on until they are told to stop: their log, and how they are told."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import NoReturn

from holdfast.cli.exit_codes import code_of_signal
from holdfast.observe.logs import Logs, configure, installed
from holdfast.settings import Settings, secrets_in, wants_colour

log = logging.getLogger("holdfast")


def log_as(settings: Settings) -> None:
    """Called before an app is loaded, and again with what the app says: most often the same."""
    wanted = Logs(settings.log_format, settings.log_level, settings.log_jobs, secrets_in(settings), wants_colour())
    if (log := installed()) is None or log.logs != wanted:
        configure(wanted)


def end_at_once(code: int = 0) -> NoReturn:
    """Threads that do not end cannot keep the process; what was said is still written."""
    try:
        _flush_log()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also when the reader of a pipe is gone
        os._exit(code)


def _flush_log() -> None:
    if (installed_log := installed()) is not None:
        installed_log.flush()


def stop_on_signals(stop: asyncio.Event, *signals: signal.Signals, waits_for: str = "the jobs that run") -> None:
    """The first one sets `stop`, the second ends the process at once, even if `stop` has been set in between."""
    heard: list[signal.Signals] = []

    def signalled(number: signal.Signals) -> None:
        if heard:
            log.warning("ended at once by a second signal, without waiting for %s", waits_for)
            _flush_log()
            os._exit(code_of_signal(number))  # also when the reader of a pipe no longer reads
        heard.append(number)
        log.info("stopping when %s have ended; a second signal ends it at once", waits_for)
        stop.set()

    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, signalled, number)
