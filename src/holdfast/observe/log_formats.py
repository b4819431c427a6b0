"""Log formats: JSON for programs, text for files, and a terminal format. Every record is one line."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.redaction import printable, redacted, redacted_end, redacted_value, text_of

# Attributes that every record has; the others were added with `extra`.
_STANDARD_ATTRIBUTES = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"))
_RESERVED_FIELDS = frozenset(("time", "level", "logger", "message", "pid", "exception", "stack"))
# Fields that a text line leaves out, because the message contains them.
_IN_MESSAGE = frozenset(("verb", "from", "to", "of", "retries", "outcome", "state"))

# On a terminal.
WIDTH = 80
ERROR_CHARS_MIN = 12
TIME_CHARS, TYPE_CHARS, TYPE_CHARS_MAX, SECONDS_CHARS = 9, 12, 24, 11
_COLOURS = {
    "dim": "2",
    "warning": "33",
    "error": "31",
    "critical": "31",
    "succeeded": "32",
    "failed": "31",
    "rejected": "35",
    "released": "33",
    "lost": "33",
}

Fields = Mapping[str, Any]
NONE: Fields = {}


class Json:
    id_chars = 36  # how much of a job's id is shown

    def head(self, at: datetime) -> str:
        """The start of a line that is written now."""
        return f'{{"time":"{_time(at)}",'

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        """The rest of the line. `trouble`: multi-line texts such as a traceback, by name."""
        return f"{self._begin(level, logger, message)}{_pairs({**fields, **trouble})}}}\n"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, trouble: Fields = NONE, timed: bool = False
    ) -> tuple[str, str]:
        """The rest of a line about a job, split where its id (and with `timed` its duration) is inserted."""
        close = "" if timed else '"'
        return f'{self._begin(level, logger, message)},"job_id":"', f"{close}{_pairs({**fields, **trouble})}}}\n"

    def timed(self, seconds: float, trace: int | None) -> str:
        """The duration and the trace id, inserted after the job's id."""
        return f'","seconds":{seconds:.6f}' + ("" if trace is None else f',"trace_id":"{trace:032x}"')

    def _begin(self, level: str, logger: str, message: str) -> str:
        return f'"level":"{level}","logger":{_encoded(logger)},"message":{_encoded(message)},"pid":{os.getpid()}'


class Text:
    """The same methods for text."""

    id_chars = 36

    def head(self, at: datetime) -> str:
        return f"{_time(at)} "

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        return f"{self._begin(level, logger)}{printable(message)}{_key_values(fields)}\n{_indented(trouble)}"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, trouble: Fields = NONE, timed: bool = False
    ) -> tuple[str, str]:
        return f"{self._begin(level, logger)}job ", f" {printable(message)}{_key_values(fields)}\n{_indented(trouble)}"

    def timed(self, seconds: float, trace: int | None) -> str:
        return f" ran {seconds:.3f} s:"

    def _begin(self, level: str, logger: str) -> str:
        return f"{level.upper():<7} {printable(logger)}: "


class Terminal(Text):
    """For a terminal: a line for an attempt fits the width, and its colour shows the outcome."""

    id_chars = 18  # of a UUIDv7: enough to identify the job in commands

    def __init__(self, width: int = WIDTH, *, colour: bool = False) -> None:
        self._width, self._colour = max(width, WIDTH), colour

    def head(self, at: datetime) -> str:
        return self._styled("dim", f"{at:%H:%M:%S}") + " "

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        word = "" if level == "info" else self._styled(level, level.upper()) + " "
        who = "" if logger.split(".", maxsplit=1)[0] == "holdfast" else f"{printable(logger)}: "
        below = self._styled("dim", _indented(trouble))
        return f"{word}{who}{printable(message)}{_key_values(_short_fields(fields, message))}\n{below}"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, trouble: Fields = NONE, timed: bool = False
    ) -> tuple[str, str]:
        """The job type first, then the id, the duration and the outcome."""
        before = f"{printable(str(fields.get('job_type')))[:TYPE_CHARS_MAX]:<{TYPE_CHARS}} "
        used = TIME_CHARS + len(before) + self.id_chars
        shown = self._attempt(fields, used + SECONDS_CHARS) if timed else self._transition(level, message, fields)
        if timed and shown.endswith("…") and not trouble:  # no traceback shows the rest of the error
            trouble = {"error": f"now {fields['state']}: {_error(fields)}"}
        return before, f" {shown}\n{self._styled('dim', _indented(trouble))}"

    def timed(self, seconds: float, trace: int | None) -> str:
        return f" {seconds:>8.3f} s"

    def _attempt(self, fields: Fields, used: int) -> str:
        """`failed 2/5, now retrying: ConnectionError: no route to host`, truncated to the width."""
        outcome, state = str(fields["outcome"]), fields["state"]
        plain = f"{outcome} {fields['attempt']}/{fields['of']}"
        more = f", now {state}" if state not in (None, outcome) else ""
        error = _error(fields)
        room = self._width - used - len(plain) - 3
        if error and room - len(more) < ERROR_CHARS_MIN:
            more = ""
        return (
            self._styled(outcome, plain)
            + more
            + (f": {_truncated(printable(error), room - len(more))}" if error else "")
        )

    def _transition(self, level: str, message: str, fields: Fields) -> str:
        reason = f" ({printable(str(fields['reason']))})" if fields.get("reason") else ""
        return self._styled(level, printable(message)) + reason

    def _styled(self, style: str, text: str) -> str:
        """With the ANSI colour of this style."""
        code = _COLOURS.get(style)
        if not (self._colour and code and text):
            return text
        shown = text.rstrip("\n")
        return f"\x1b[{code}m{shown}\x1b[0m{text[len(shown) :]}"


LogFormat = Json | Text


def _error(fields: Fields) -> str:
    return ": ".join(str(fields[name]) for name in ("error_code", "error") if fields.get(name))


def _truncated(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"


def _short_fields(fields: Fields, message: str) -> dict[str, Any]:
    """The job's fields as one short field, unless the message names the job."""
    shown = {name: value for name, value in fields.items() if name not in ("job_id", "job_type", "queue", "attempt")}
    job = fields.get("job_id")
    if isinstance(job, str) and job not in message:
        shown["job"] = f"{fields.get('job_type', '')}:{job[: Terminal.id_chars]}".lstrip(":")
    return shown


def _indented(trouble: Fields) -> str:
    """Multi-line texts, indented by four spaces, so that no line looks like the start of a record."""
    return "".join(f"    {printable(line)}\n" for text in trouble.values() for line in text.splitlines())


def formatted(record: logging.LogRecord, form: LogFormat) -> str:
    """A record of Python's logging as a line. It never raises, whatever the record contains."""
    trouble: dict[str, str] = {}
    if record.exc_info and record.exc_info[0] is not None:
        trouble["exception"] = redacted_end(text_of("".join(traceback.format_exception(*record.exc_info))))
    elif record.exc_text:
        trouble["exception"] = redacted_end(text_of(record.exc_text))
    if record.stack_info:
        trouble["stack"] = redacted_end(text_of(record.stack_info))
    at = datetime.fromtimestamp(record.created, UTC)
    level = record.levelname.lower() if record.levelname.isalpha() else str(record.levelno)
    return form.head(at) + form.line(level, record.name, _message(record), _extra_fields(record), trouble)


def _message(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # the arguments do not fit the format string
        message = f"{text_of(record.msg)} {text_of(record.args)}"
    return redacted(text_of(message))


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of `extra`. A name that the format itself uses gets a trailing underscore."""
    added = {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
    return {
        f"{name}_" if name in _RESERVED_FIELDS else name: redacted_value(value, name)
        for name, value in ((text_of(name), value) for name, value in added.items())
    }


def _time(at: datetime) -> str:
    """RFC 3339, in UTC."""
    return f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _pairs(fields: Fields) -> str:
    return "".join(f",{_encoded(name)}:{_encoded(value)}" for name, value in fields.items())


def _encoded(value: Any) -> str:
    """JSON without line separators, terminal control characters and `<`, which JSON itself allows."""
    text = msgspec.json.encode(value).decode().replace("<", "\\u003c")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _key_values(fields: Fields) -> str:
    shown = {name: value for name, value in fields.items() if value is not None and name not in _IN_MESSAGE}
    return "".join(f" {printable(name)}={_value(value)}" for name, value in shown.items())


def _value(value: Any) -> str:
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set(" \"'=")
    return value if plain and value else _encoded(value)
