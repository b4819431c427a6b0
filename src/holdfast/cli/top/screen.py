"""The live screen of `holdfast top`: refreshes at every interval on the alternate screen, until q or a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.top.collector import Collector
from holdfast.cli.top.keyboard import keys
from holdfast.cli.top.render import render
from holdfast.cli.top.snapshot import TopSnapshot
from holdfast.clock import Clock
from holdfast.errors import StoreError

TIMEOUT_SECONDS = 10.0  # of one refresh


class View:
    def __init__(self, collector: Collector, console: Console, clock: Clock, *, every: float) -> None:
        self._collector, self._console, self._clock, self._every = collector, console, clock, every
        self._ended = asyncio.Event()
        self._live = Live(console=console, screen=True, auto_refresh=False)
        self._snapshot: TopSnapshot | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Until q is pressed or a signal is received."""
        quit_on = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self._ended.set)
        with signals(quit_on | {signal.SIGWINCH: self._draw}), keys(self._pressed), self._live:
            refreshing = asyncio.create_task(self._refresh())
            ended = asyncio.create_task(self._ended.wait())
            await asyncio.wait({refreshing, ended}, return_when=asyncio.FIRST_COMPLETED)
            for task in (refreshing, ended):
                task.cancel()
            [failed, _] = await asyncio.gather(refreshing, ended, return_exceptions=True)
            if isinstance(failed, Exception):
                raise failed

    def _pressed(self, what: str) -> None:
        if not what or "q" in what.lower():
            self._ended.set()

    async def _refresh(self) -> None:
        while True:
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    self._snapshot = await self._collector.collect()
                self._trouble = ""
            except StoreError as error:
                self._trouble = f"database unreachable, retrying: {error.full}"
            except TimeoutError:
                self._trouble = f"no response from the database for {TIMEOUT_SECONDS:.0f} s, retrying"
            self._draw()
            await self._clock.sleep(self._every)

    def _draw(self) -> None:
        if self._snapshot is None:
            self._live.update(Text(self._trouble), refresh=True)
            return
        width, height = self._console.size
        shown = render(self._snapshot, width=width, height=height, trouble=self._trouble, foot="q quits")
        self._live.update(shown, refresh=True)


@contextmanager
def signals(handlers: dict[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
