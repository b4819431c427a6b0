"""Shared by the long-running commands: log setup and stop signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from typing import NoReturn

from holdfast.cli.exit_codes import code_of_signal
from holdfast.observe.logs import Logs, configure, installed
from holdfast.settings import Settings, secrets_in, wants_colour

DEFAULT_THRESHOLD = gc.get_threshold()  # of this version of Python

log = logging.getLogger("holdfast")


def configure_logging(settings: Settings) -> None:
    """Called before an app is loaded, and again with the app's settings."""
    wanted = Logs(settings.log_format, settings.log_level, settings.log_jobs, secrets_in(settings), wants_colour())
    if (log := installed()) is None or log.logs != wanted:
        configure(wanted)


def collect_garbage_seldom(objects: int) -> None:
    """Once in so many allocations, and never again what the startup left: requests and jobs create few reference
    cycles. Not if the app has its own settings."""
    if gc.get_threshold() == DEFAULT_THRESHOLD:
        gc.collect()
        gc.freeze()
        gc.set_threshold(objects, 20, 50)


def exit_now(code: int = 0) -> NoReturn:
    """Exit without waiting for threads; buffered output is flushed."""
    try:
        _flush_log()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also if the reader of a pipe is gone
        os._exit(code)


def _flush_log() -> None:
    if (installed_log := installed()) is not None:
        installed_log.flush()


def stop_on_signals(stop: asyncio.Event, *signals: signal.Signals, waits_for: str = "running jobs") -> None:
    """The first signal sets `stop`, the second exits at once."""
    received: list[signal.Signals] = []

    def signalled(number: signal.Signals) -> None:
        if received:
            log.warning("second signal: exiting without waiting for %s", waits_for)
            _flush_log()
            os._exit(code_of_signal(number))  # also if the reader of a pipe has stopped reading
        received.append(number)
        log.info("stopping: waiting for %s; a second signal exits at once", waits_for)
        stop.set()

    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, signalled, number)
