"""What a line of the log looks like: JSON for programs, text for people. Each is one line, whatever is in it."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from holdfast.redaction import printable, redacted, redacted_end, redacted_value, text_of

# What every record has; the rest are fields that whoever logged it added.
_OURS = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"))
_TAKEN = frozenset(("time", "level", "logger", "message", "pid", "exception", "stack"))
# On a line of text, what its message says already.
_SAID = frozenset(("verb", "from", "to", "of", "retries", "outcome", "state"))

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


class LogFormat(Protocol):
    id_chars: int  # so much of a job's id is shown

    def head(self, at: datetime) -> str:
        """How a line begins that is written now."""
        ...

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        """The rest of it. `trouble`: texts of many lines, by name."""
        ...

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, trouble: Fields = NONE, timed: bool = False
    ) -> tuple[str, str]:
        """The rest of a line about a job, without its id: what stands before and behind it, or behind its time."""
        ...

    def timed(self, seconds: float, trace: int | None) -> str:
        """How long it took, and where it is traced: what follows the id."""
        ...


class Json:
    id_chars = 36

    def head(self, at: datetime) -> str:
        return f'{{"time":"{_time(at)}",'

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        return f"{self._begin(level, logger, message)}{_pairs({**fields, **trouble})}}}\n"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, trouble: Fields = NONE, timed: bool = False
    ) -> tuple[str, str]:
        close = "" if timed else '"'
        return f'{self._begin(level, logger, message)},"job_id":"', f"{close}{_pairs({**fields, **trouble})}}}\n"

    def timed(self, seconds: float, trace: int | None) -> str:
        return f'","seconds":{seconds:.6f}' + ("" if trace is None else f',"trace_id":"{trace:032x}"')

    def _begin(self, level: str, logger: str, message: str) -> str:
        return f'"level":"{level}","logger":{_encoded(logger)},"message":{_encoded(message)},"pid":{os.getpid()}'


class Text:
    id_chars = 36

    def head(self, at: datetime) -> str:
        return f"{_time(at)} "

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        return f"{self._begin(level, logger)}{printable(message)}{_words(fields)}\n{_below(trouble)}"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, trouble: Fields = NONE, timed: bool = False
    ) -> tuple[str, str]:
        return f"{self._begin(level, logger)}job ", f" {printable(message)}{_words(fields)}\n{_below(trouble)}"

    def timed(self, seconds: float, trace: int | None) -> str:
        return f" ran {seconds:.3f} s:"

    def _begin(self, level: str, logger: str) -> str:
        return f"{level.upper():<7} {printable(logger)}: "


class Terminal(Text):
    """For people who watch: a line for an attempt fits the width, and colours say how it went."""

    id_chars = 18  # of a UUIDv7: enough to be typed instead of it

    def __init__(self, width: int = WIDTH, *, colour: bool = False) -> None:
        self._width, self._colour = max(width, WIDTH), colour

    def head(self, at: datetime) -> str:
        return self._in("dim", f"{at:%H:%M:%S}") + " "

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        word = "" if level == "info" else self._in(level, level.upper()) + " "
        who = "" if logger.split(".", maxsplit=1)[0] == "holdfast" else f"{printable(logger)}: "
        return f"{word}{who}{printable(message)}{_words(_unsaid(fields, message))}\n{self._in('dim', _below(trouble))}"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, trouble: Fields = NONE, timed: bool = False
    ) -> tuple[str, str]:
        """With what everybody wants to know of it, in the order in which it is looked for."""
        before = f"{printable(str(fields.get('job_type')))[:TYPE_CHARS_MAX]:<{TYPE_CHARS}} "
        used = TIME_CHARS + len(before) + self.id_chars
        told = self._attempt(fields, used + SECONDS_CHARS) if timed else self._move(level, message, fields)
        if timed and told.endswith("…") and not trouble:  # no traceback says the rest of the error
            trouble = {"error": f"now {fields['state']}: {_error(fields)}"}
        return before, f" {told}\n{self._in('dim', _below(trouble))}"

    def timed(self, seconds: float, trace: int | None) -> str:
        return f" {seconds:>8.3f} s"

    def _attempt(self, fields: Fields, used: int) -> str:
        """`failed 2/5, now retrying: ConnectionError: no route to host`, the rest of it cut."""
        outcome, state = str(fields["outcome"]), fields["state"]
        plain = f"{outcome} {fields['attempt']}/{fields['of']}"
        more = f", now {state}" if state not in (None, outcome) else ""
        error = _error(fields)
        room = self._width - used - len(plain) - 3
        if error and room - len(more) < ERROR_CHARS_MIN:
            more = ""
        return self._in(outcome, plain) + more + (f": {_cut(printable(error), room - len(more))}" if error else "")

    def _move(self, level: str, message: str, fields: Fields) -> str:
        reason = f" ({printable(str(fields['reason']))})" if fields.get("reason") else ""
        return self._in(level, printable(message)) + reason

    def _in(self, style: str, text: str) -> str:
        """In the colour of what it is about."""
        code = _COLOURS.get(style)
        if not (self._colour and code and text):
            return text
        shown = text.rstrip("\n")
        return f"\x1b[{code}m{shown}\x1b[0m{text[len(shown) :]}"


def _error(fields: Fields) -> str:
    return ": ".join(str(fields[name]) for name in ("error_code", "error") if fields.get(name))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"


def _unsaid(fields: Fields, message: str) -> dict[str, Any]:
    """Which job, in short, unless the message names it; the rest as it is."""
    shown = {name: value for name, value in fields.items() if name not in ("job_id", "job_type", "queue", "attempt")}
    job = fields.get("job_id")
    if isinstance(job, str) and job not in message:
        shown["job"] = f"{fields.get('job_type', '')}:{job[: Terminal.id_chars]}".lstrip(":")
    return shown


def _below(trouble: Fields) -> str:
    """Texts of many lines, each behind four spaces, where no record can begin."""
    return "".join(f"    {printable(line)}\n" for text in trouble.values() for line in text.splitlines())


def told(record: logging.LogRecord, form: LogFormat) -> str:
    """A record of Python's own logging as a line; nothing that is in it keeps it from becoming one."""
    trouble: dict[str, str] = {}
    if record.exc_info and record.exc_info[0] is not None:
        trouble["exception"] = redacted_end(text_of("".join(traceback.format_exception(*record.exc_info))))
    elif record.exc_text:
        trouble["exception"] = redacted_end(text_of(record.exc_text))
    if record.stack_info:
        trouble["stack"] = redacted_end(text_of(record.stack_info))
    at = datetime.fromtimestamp(record.created, UTC)
    level = record.levelname.lower() if record.levelname.isalpha() else str(record.levelno)
    return form.head(at) + form.line(level, record.name, _message(record), _added(record), trouble)


def _message(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # arguments that do not fit the message
        message = f"{text_of(record.msg)} {text_of(record.args)}"
    return redacted(text_of(message))


def _added(record: logging.LogRecord) -> dict[str, Any]:
    """A field that has the name of one of ours gets another."""
    added = {name: value for name, value in vars(record).items() if name not in _OURS}
    return {
        f"{name}_" if name in _TAKEN else name: redacted_value(value, name)
        for name, value in ((text_of(name), value) for name, value in added.items())
    }


def _time(at: datetime) -> str:
    """RFC 3339, in UTC."""
    return f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _pairs(fields: Fields) -> str:
    return "".join(f",{_encoded(name)}:{_encoded(value)}" for name, value in fields.items())


def _encoded(value: Any) -> str:
    """JSON without what ends a line, steers a terminal or begins a tag where it is shown: JSON itself allows more."""
    text = msgspec.json.encode(value).decode().replace("<", "\\u003c")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _words(fields: Fields) -> str:
    shown = {name: value for name, value in fields.items() if value is not None and name not in _SAID}
    return "".join(f" {printable(name)}={_word(value)}" for name, value in shown.items())


def _word(value: Any) -> str:
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set(" \"'=")
    return value if plain and value else _encoded(value)
