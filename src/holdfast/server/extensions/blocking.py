"""Code of an extension, watched step by step: while it blocks the event loop, no other request is answered."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.store.hook_guard import tell_blocked

_T = TypeVar("_T")

log = logging.getLogger("holdfast.serve")


@coroutine
def told_if_held_up(work: Coroutine[Any, Any, _T], clock: Clock, extension: str, name: str) -> Generator[Any, Any, _T]:
    """`await work`, and a line in the log for each of its steps that takes too long."""

    def tell(seconds: float) -> None:
        log.warning(
            "extension %s: %s held up all other requests of this process for %.1f s; await what takes long, or call it "
            "with asyncio.to_thread(...)",
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
            tell_blocked(clock.monotonic() - began, tell)
        try:
            yield waited
            error = None
        except BaseException as raised:
            error = raised
