"""A reader of an event stream that can be slow, stop reading, and reconnect."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import msgspec

from tests.server.steps import Served

PATIENCE = 60.0


class Said(NamedTuple):
    """One block of a stream: an event, or only a place, a comment or a word on when to come back."""

    id: str | None
    name: str | None
    data: Any
    raw: str

    @property
    def event(self) -> tuple[str, int]:
        return self.data["jobId"], self.data["seq"]


def parsed(block: str) -> Said:
    """As a browser reads it: of each field the last, and what begins with a colon is a comment."""
    fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
    data = msgspec.json.decode(fields["data"]) if "data" in fields else None
    return Said(fields.get("id"), fields.get("event"), data, block)


class Watching:
    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._text, self._rest = answer.aiter_text(), ""
        self.last: str | None = None

    async def block(self) -> Said | None:
        """The next one of any kind; None at the end of the stream."""
        while "\n\n" not in self._rest:
            try:
                async with asyncio.timeout(PATIENCE):
                    self._rest += await anext(self._text)
            except StopAsyncIteration:
                return None
        block, self._rest = self._rest.split("\n\n", 1)
        said = parsed(block)
        self.last = said.id or self.last
        return said

    async def next(self) -> Said | None:
        """The next event; None at the end."""
        while (said := await self.block()) is not None and said.data is None:
            continue
        return said

    async def rest(self) -> list[Said]:
        found = []
        while (said := await self.next()) is not None:
            found.append(said)
        return found


@asynccontextmanager
async def watching(
    served: Served, path: str, *, last: str | None = None, headers: dict[str, str] | None = None
) -> AsyncIterator[Watching]:
    resumed = {} if last is None else {"Last-Event-ID": last}
    async with served.http.stream("GET", path, headers={**(headers or {}), **resumed}) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream"
        yield Watching(answer)
