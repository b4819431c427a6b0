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

Fields = Mapping[str, Any]


class Form(Protocol):
    def head(self, at: datetime) -> str:
        """How a line begins that is written now."""
        ...

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        """The rest of it. `trouble`: texts of many lines, by name."""
        ...

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, timed: bool = False
    ) -> tuple[str, str]:
        """The rest of a line about a job, without its id: what stands before and behind it, or behind its time."""
        ...

    def timed(self, seconds: float, trace: int | None) -> str:
        """How long it took, and where it is traced: what follows the id."""
        ...


class Json:
    def head(self, at: datetime) -> str:
        return f'{{"time":"{_time(at)}",'

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        return f"{self._begin(level, logger, message)}{_pairs({**fields, **trouble})}}}\n"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, timed: bool = False
    ) -> tuple[str, str]:
        close = "" if timed else '"'
        return f'{self._begin(level, logger, message)},"job_id":"', f"{close}{_pairs(fields)}}}\n"

    def timed(self, seconds: float, trace: int | None) -> str:
        return f'","seconds":{seconds:.6f}' + ("" if trace is None else f',"trace_id":"{trace:032x}"')

    def _begin(self, level: str, logger: str, message: str) -> str:
        return f'"level":"{level}","logger":{_encoded(logger)},"message":{_encoded(message)},"pid":{os.getpid()}'


class Text:
    def head(self, at: datetime) -> str:
        return f"{_time(at)} "

    def line(self, level: str, logger: str, message: str, fields: Fields, trouble: Fields) -> str:
        below = "".join(f"    {printable(line)}\n" for text in trouble.values() for line in text.splitlines())
        return f"{self._begin(level, logger)}{printable(message)}{_words(fields)}\n{below}"

    def around_id(
        self, level: str, logger: str, message: str, fields: Fields, *, timed: bool = False
    ) -> tuple[str, str]:
        return f"{self._begin(level, logger)}job ", f" {printable(message)}{_words(fields)}\n"

    def timed(self, seconds: float, trace: int | None) -> str:
        return f" ran {seconds:.3f} s:"

    def _begin(self, level: str, logger: str) -> str:
        return f"{level.upper():<7} {printable(logger)}: "


def told(record: logging.LogRecord, form: Form) -> str:
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
