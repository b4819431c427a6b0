"""Logging of the processes that are ours: `holdfast serve`, `worker`, `dev`, and those that they start.

A program that uses Holdfast as a library logs as it likes: nothing here is called there, and nothing is touched.
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
from holdfast.observe.log_formats import Json, LogFormat, Terminal, Text, told
from holdfast.observe.log_writer import LogWriter
from holdfast.redaction import know

FLUSH_SECONDS = 1.0
MOVES, ATTEMPTS = "holdfast.moves", "holdfast.attempts"
# At every request one of these says something that nobody wants to know.
_TALKATIVE = ("httpx2", "httpcore2", "botocore", "aiobotocore")

_installed: list[Log] = []  # one, in a process that is ours


class Logs(msgspec.Struct, frozen=True):
    """How a process is to log. The processes it starts are told the same."""

    form: str = "auto"  # json or text; auto: text on a terminal, JSON elsewhere
    level: str = "info"
    jobs: bool = True  # a line for each move of a job, and for each attempt
    secrets: tuple[str, ...] = ()  # hidden wherever they stand
    colour: bool = True  # on a terminal


class Log(logging.Handler):
    """Everything that this process has to say, on its standard error."""

    def __init__(self, logs: Logs, descriptor: int, form: LogFormat) -> None:
        super().__init__()
        self.logs, self.form = logs, form
        self._clock = Clock()
        self._lines = LogWriter(descriptor, self._dropped)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(told(record, self.form).encode())

    def head(self) -> str:
        """How lines begin that are written now."""
        return self.form.head(self._clock.now())

    def put(self, pieces: Sequence[str]) -> None:
        """Whole lines in their final form, in pieces, for what is too frequent for records."""
        if pieces:
            self._lines.put("".join(pieces).encode())

    def flush(self) -> None:
        self._lines.flush(FLUSH_SECONDS)

    def close(self) -> None:
        self.flush()
        self._lines.close()
        super().close()

    def _dropped(self, lines: int) -> bytes:
        message = f"{lines} lines of this log were dropped: whoever reads it is too slow"
        return (self.head() + self.form.line("warning", __name__, message, {"dropped": lines}, {})).encode()


def configure(logs: Logs) -> None:
    """From now on this process logs like that."""
    root = logging.getLogger()
    while _installed:
        root.removeHandler(before := _installed.pop())
        before.close()
    know(logs.secrets)
    logging.captureWarnings(True)
    _set_levels(logs.level)
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
    """None in a program that is not ours."""
    return _installed[0] if _installed else None


def job_lines() -> Log | None:
    """Where moves and attempts are told, if they are."""
    return log if (log := installed()) is not None and log.logs.jobs else None


def is_json() -> bool:
    return (log := installed()) is not None and isinstance(log.form, Json)


def hush_moves() -> None:
    """On a terminal a line for each attempt is enough, unless its reader wants to know everything."""
    log = installed()
    if log is not None and isinstance(log.form, Terminal) and log.logs.level != "debug":
        logging.getLogger(MOVES).setLevel(logging.WARNING)


def hush_jobs(*, failures: bool) -> None:
    """On a terminal where somebody else tells what becomes of jobs; `failures`: who tells of those, too."""
    if not is_json():
        logging.getLogger(MOVES).setLevel(logging.ERROR)
        logging.getLogger(ATTEMPTS).setLevel(logging.ERROR if failures else logging.WARNING)


def _set_levels(level: str) -> None:
    """`debug` is about us and what handlers say: what libraries say there may hold what is nobody's business."""
    wanted = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(wanted, logging.INFO))
    logging.getLogger("holdfast").setLevel(wanted)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(wanted, logging.WARNING))


def _standard_error() -> int | None:
    """None where it was closed before we came; its number may be a connection by now."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _uncaught(kind: Any, error: Any, trace: Any) -> None:
    if kind is SystemExit:
        return
    logging.getLogger("holdfast").critical("an error that nobody caught: %s", error, exc_info=(kind, error, trace))
