"""Prints a line for each job that ends or will be retried, from the event log."""

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

POLL_SECONDS = 0.5
LINES_MAX = 20  # of one poll; further events are summed up
TEXT_MAX = 100
PRINTED_STATES = FINAL | {State.RETRYING}


@asynccontextmanager
async def events_printed(engine: Engine, stop: asyncio.Event) -> AsyncIterator[None]:
    """Print events while the context is open; `stop` is set when printing fails."""
    printer = EventPrinter(engine, await engine.reads.feed_end())
    printing = asyncio.create_task(printer.run())
    printing.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        printing.cancel()
        with suppress(asyncio.CancelledError):
            await printing
    await printer.poll()


class EventPrinter:
    def __init__(self, engine: Engine, begin: Cursor) -> None:
        self._engine, self._cursor = engine, begin

    async def run(self) -> None:
        """Until cancelled. The worker logs database outages."""
        while True:
            try:
                more = await self.poll()
            except StoreError:
                more = False
            await self._engine.clock.sleep(0 if more else POLL_SECONDS)

    async def poll(self) -> bool:
        """Print new events. True if there may be more."""
        events, self._cursor = await self._engine.reads.feed(self._cursor)
        printed = [event for event in events if event.to_state is not None and State(event.to_state) in PRINTED_STATES]
        for event in printed[:LINES_MAX]:
            await self._print(event)
        _print_summary(printed[LINES_MAX:])
        return bool(events)

    async def _print(self, event: Event) -> None:
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
            return f"{which}: {_truncated(json_text(job.result))}"
        case State.CANCELED:
            return _truncated(event.reason or "")
    message = event.data.get("message") if isinstance(event.data, dict) else None
    return f"{which}: {_truncated(redacted(': '.join(filter(None, (event.reason, message)))))}"


def _traceback(event: Event) -> list[str]:
    """The traceback of a failed attempt."""
    context = event.data.get("context") if isinstance(event.data, dict) and event.verb == "fail" else None
    text = context.get("traceback") if isinstance(context, dict) else None
    return redacted_end(text).splitlines() if isinstance(text, str) else []


def _truncated(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _print_summary(events: list[Event]) -> None:
    by_state = Counter(str(event.to_state) for event in events)
    if by_state:
        states = ", ".join(f"{number:,} {state}" for state, number in sorted(by_state.items()))
        print(f"          and {count(len(events), 'more job')}: {states}", flush=True)
