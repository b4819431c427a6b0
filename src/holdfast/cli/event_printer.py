"""Tells, in a line each, which jobs ended and which are tried again: a reader of the feed of all events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.cli.database import machines_of
from holdfast.cli.output import count, json_text
from holdfast.errors import NotFound, StoreError
from holdfast.lifecycle import FINAL, State
from holdfast.model import Event, Job
from holdfast.redaction import printable, redacted, redacted_end

if TYPE_CHECKING:
    from holdfast.engine import Cursor, Engine

LOOK_SECONDS = 0.5
LINES_MAX = 20  # of one look: nobody reads a thousand lines a second
TEXT_MAX = 100
WORTH_TELLING = FINAL | {State.RETRYING}


@asynccontextmanager
async def narrated(engine: Engine, stop: asyncio.Event) -> AsyncIterator[None]:
    """Tell what happens from now on; `stop` is set when nobody can be told any more."""
    narrator = EventPrinter(engine, await engine.reads.feed_end())
    telling = asyncio.create_task(narrator.run())
    telling.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling
    await narrator.look()


class EventPrinter:
    def __init__(self, engine: Engine, begin: Cursor) -> None:
        self._engine, self._cursor = engine, begin

    async def run(self) -> None:
        """Until cancelled. A database that is away is the worker's to complain of."""
        while True:
            try:
                more = await self.look()
            except StoreError:
                more = False
            await self._engine.clock.sleep(0 if more else LOOK_SECONDS)

    async def look(self) -> bool:
        """Tell what is new. True if there may be more at once."""
        events, self._cursor = await self._engine.reads.feed(self._cursor)
        told = [event for event in events if event.to_state is not None and State(event.to_state) in WORTH_TELLING]
        for event in told[:LINES_MAX]:
            await self._tell(event)
        _sum_up(told[LINES_MAX:])
        return bool(events)

    async def _tell(self, event: Event) -> None:
        try:
            job = await self._engine.reads.get(event.job_id)
        except NotFound:  # pruned since
            return
        word = (await machines_of(self._engine, [job]))[job.id].words[State(str(event.to_state))]
        line = f"{event.at:%H:%M:%S}  {job.type:<10}  {word:<9}  {_details(event, job)}"
        print(printable(line.rstrip()), flush=True)
        for below in _traceback(event):
            print(f"    {printable(below)}", flush=True)


def _details(event: Event, job: Job) -> str:
    which = f"attempt {event.attempt} of {job.max_attempts}"
    match State(str(event.to_state)):
        case State.SUCCEEDED:
            return f"{which}: {_cut(json_text(job.result))}"
        case State.CANCELED:
            return _cut(event.reason or "")
    message = event.data.get("message") if isinstance(event.data, dict) else None
    return f"{which}: {_cut(redacted(': '.join(filter(None, (event.reason, message)))))}"


def _traceback(event: Event) -> list[str]:
    """Of what its handler raised: an attempt that failed is what somebody who tries things out wants to understand."""
    context = event.data.get("context") if isinstance(event.data, dict) and event.verb == "fail" else None
    told = context.get("traceback") if isinstance(context, dict) else None
    return redacted_end(told).splitlines() if isinstance(told, str) else []


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _sum_up(events: list[Event]) -> None:
    by_state = Counter(str(event.to_state) for event in events)
    if by_state:
        states = ", ".join(f"{number:,} {state}" for state, number in sorted(by_state.items()))
        print(f"          and {count(len(events), 'line')} like these: {states}", flush=True)
