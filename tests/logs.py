"""What Holdfast itself has logged, without the lines of the libraries below it.

asyncpg leaves a future behind when a connect is cancelled just after its TCP connection was made. When that future is
collected, possibly in a later test, asyncio logs "unexpected connection_lost() call".
"""

import logging

import pytest


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.NOTSET) -> list[str]:
    """At this level or above."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.split(".")[0] == "holdfast" and record.levelno >= level
    ]
