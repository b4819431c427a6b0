"""Detects extension code that blocks the event loop, and logs a warning."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.store.hook_guard import report_blocking

_T = TypeVar("_T")

log = logging.getLogger("holdfast.serve")


@coroutine
def warn_if_blocking(work: Coroutine[Any, Any, _T], clock: Clock, extension: str, name: str) -> Generator[Any, Any, _T]:
    """`await work`, with a warning for each step that blocks too long."""

    def tell(seconds: float) -> None:
        log.warning(
            "extension %s: %s blocked the event loop for %.1f s; use asyncio.to_thread(...) for blocking calls",
            *(extension, name, seconds),
            extra={"extension": extension},
        )

    error: BaseException | None = None
    while True:
        began = clock.monotonic()
        try:
            waited = work.send(None) if error is None else work.throw(error)
        except StopIteration as done:
            answer: _T = done.value
            return answer
        finally:
            report_blocking(clock.monotonic() - began, tell)
        try:
            yield waited
            error = None
        except BaseException as raised:
            error = raised
