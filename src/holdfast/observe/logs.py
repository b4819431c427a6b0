"""Logging setup of `holdfast serve`, `worker` and `dev`, and of the processes that they start.

A program that uses Holdfast as a library configures logging itself: nothing here is called there.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.observe.log_formats import Json, LogFormat, Terminal, Text, formatted
from holdfast.observe.log_writer import LogWriter
from holdfast.redaction import know

FLUSH_SECONDS = 1.0
TRANSITIONS, ATTEMPTS = "holdfast.transitions", "holdfast.attempts"
# These log every request at INFO.
_VERBOSE = ("httpx2", "httpcore2", "botocore", "aiobotocore")

_installed: list[Log] = []  # the one handler of a Holdfast process


class Logs(msgspec.Struct, frozen=True):
    """Log settings of a process. The processes that it starts get the same."""

    form: str = "auto"  # json or text; auto: text on a terminal, JSON elsewhere
    level: str = "info"
    jobs: bool = True  # a line for each transition of a job, and for each attempt
    secrets: tuple[str, ...] = ()  # redacted everywhere
    colour: bool = True  # on a terminal
    levels: dict[str, int] = {}  # of loggers that a command has changed


class Log(logging.Handler):
    """The log handler of a Holdfast process: writes to standard error."""

    def __init__(self, logs: Logs, descriptor: int, form: LogFormat) -> None:
        super().__init__()
        self.logs, self.form = logs, form
        self._clock = Clock()
        self._lines = LogWriter(descriptor, self._dropped)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(formatted(record, self.form).encode())

    def head(self) -> str:
        """The start of lines that are written now."""
        return self.form.head(self._clock.now())

    def put(self, pieces: Sequence[str]) -> None:
        """Formatted lines, in pieces: for lines too frequent for log records."""
        if pieces:
            self._lines.put("".join(pieces).encode())

    def flush(self) -> None:
        self._lines.flush(FLUSH_SECONDS)

    def close(self) -> None:
        self.flush()
        self._lines.close()
        super().close()

    def _dropped(self, lines: int) -> bytes:
        message = f"{lines} log lines were dropped: the reader of this log is too slow"
        return (self.head() + self.form.line("warning", __name__, message, {"dropped": lines}, {})).encode()


def configure(logs: Logs) -> None:
    """Install the log handler of this process, in place of an earlier one."""
    root = logging.getLogger()
    while _installed:
        root.removeHandler(before := _installed.pop())
        before.close()
    know(logs.secrets)
    logging.captureWarnings(True)
    _set_levels(logs.level)
    for name, level in logs.levels.items():
        logging.getLogger(name).setLevel(level)
    if (descriptor := _standard_error()) is None:
        return
    as_text = logs.form == "text" or (logs.form == "auto" and os.isatty(descriptor))
    _installed.append(Log(logs, descriptor, _form(descriptor, logs, as_text)))
    root.addHandler(_installed[0])
    if not as_text:
        sys.excepthook = _uncaught
        threading.excepthook = lambda failed: _uncaught(failed.exc_type, failed.exc_value, failed.exc_traceback)


def _form(descriptor: int, logs: Logs, as_text: bool) -> LogFormat:
    if not as_text:
        return Json()
    if not os.isatty(descriptor):
        return Text()
    try:
        width = os.get_terminal_size(descriptor).columns
    except OSError:
        width = 0
    return Terminal(width, colour=logs.colour)


def installed() -> Log | None:
    """The handler, or None in a program that uses Holdfast as a library."""
    return _installed[0] if _installed else None


def inherited() -> Logs | None:
    """The settings for the processes that this one starts; None in a program that uses Holdfast as a library."""
    if (log := installed()) is None:
        return None
    levels = {name: logging.getLogger(name).level for name in (TRANSITIONS, ATTEMPTS)}
    return msgspec.structs.replace(log.logs, levels=levels)


def job_lines() -> Log | None:
    """The handler, if transitions and attempts are logged."""
    return log if (log := installed()) is not None and log.logs.jobs else None


def is_json() -> bool:
    return (log := installed()) is not None and isinstance(log.form, Json)


def quiet_transitions() -> None:
    """On a terminal, log attempts only, not every transition, unless the level is debug."""
    log = installed()
    if log is not None and isinstance(log.form, Terminal) and log.logs.level != "debug":
        logging.getLogger(TRANSITIONS).setLevel(logging.WARNING)


def quiet_jobs(*, failures: bool) -> None:
    """On a terminal where another part prints the jobs; `failures`: it also prints failed attempts."""
    if not is_json():
        logging.getLogger(TRANSITIONS).setLevel(logging.ERROR)
        logging.getLogger(ATTEMPTS).setLevel(logging.ERROR if failures else logging.WARNING)


def _set_levels(level: str) -> None:
    """`debug` applies to Holdfast and handlers only: debug lines of libraries may contain secrets."""
    wanted = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(wanted, logging.INFO))
    logging.getLogger("holdfast").setLevel(wanted)
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(max(wanted, logging.WARNING))


def _standard_error() -> int | None:
    """None if it was closed before the process started: its number may belong to a connection by now."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _uncaught(kind: Any, error: Any, trace: Any) -> None:
    if kind is SystemExit:
        return
    logging.getLogger("holdfast").critical("uncaught exception: %s", error, exc_info=(kind, error, trace))
