"""What a log of ours says, for tests to read."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.observe.log_formats import Json, LogFormat
from holdfast.observe.logs import ATTEMPTS, TRANSITIONS, Log, Logs


class Heard:
    def __init__(self, log: Log, path: Path) -> None:
        self.log, self._path = log, path

    @property
    def text(self) -> str:
        return self._path.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return json_lines(self.text)

    def about(self, job: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("job_id") == job]


def json_lines(text: str) -> list[dict[str, Any]]:
    """Every line is a JSON object, and ends where the line ends for whoever splits it."""
    assert text.splitlines() == text.split("\n")[:-1], "something in there ends a line"
    return [json.loads(line) for line in text.split("\n")[:-1]]


@contextmanager
def hearing(folder: Path, form: LogFormat | None = None, level: int = logging.INFO) -> Iterator[Heard]:
    """A log of ours in a file. That it is in force here, and nowhere in the process, is what makes it a test's own."""
    path = folder / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    loggers = [logging.getLogger(name) for name in (TRANSITIONS, ATTEMPTS)]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield Heard(Log(Logs(), descriptor, form or Json()), path)
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.setLevel(old)
        os.close(descriptor)
