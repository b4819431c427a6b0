"""Group commit: concurrent callers of one process share a batch; what arrives meanwhile goes into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from holdfast.clock import turn
from holdfast.errors import HoldfastError, Locked, RowRefused, StoreError

AT_ONCE_MAX = 4  # items that are sent one by one because one of them is locked

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """A single caller is sent at once; concurrent callers share the cost of a commit.

    `turns`: of the event loop before each batch, so that callers of the same moment join it, as in a server.
    `answers_each`: `send` may commit some items before others fail. It returns a result for each item, and an error
    that it raises goes to all of them: nothing is sent again. Otherwise see `each`.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        most: int = 500,
        turns: int = 0,
        answers_each: bool = False,
    ) -> None:
        self._send = send
        self._answers_each = answers_each
        self._most = most
        self._turns = turns
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._lone = False

    async def put(self, item: Item) -> Result:
        if self._sending is None and not self._lone:
            return await (self._send_alone(item) if not self._turns else self._send_together(item))
        return await self._queue(item)

    def _queue(self, item: Item) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        return future

    async def _send_together(self, item: Item) -> Result:
        """Waits for callers of the same moment."""
        self._lone = True
        try:
            await turn()
        finally:
            self._lone = False
            if self._waiting:
                self._sending = asyncio.create_task(self._send_all())
        return await (self._send_alone(item) if self._sending is None else self._queue(item))

    async def _send_alone(self, item: Item) -> Result:
        """In the caller's own task: another task would cost as much as the rest."""
        self._lone = True
        try:
            (answer,) = await self._send([item])
        finally:
            self._lone = False
            self._waiting = [(item, future) for item, future in self._waiting if not future.done()]
            if self._waiting:
                self._sending = asyncio.create_task(self._send_all())
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _send_all(self) -> None:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._send_batch(batch)
                for _ in range(self._turns):
                    await turn()
        finally:
            self._sending = None
            for _, future in batch + self._waiting:  # all have results, unless the event loop ends
                future.cancel()

    async def _send_batch(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        answers: Sequence[Result | Exception]
        items = [item for item, _ in batch]
        try:
            answers = await (self._send(items) if self._answers_each else each(self._send, items))
        except Exception as error:  # a bug: these callers get the error, later ones are not affected
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            _settle(future, answer)


async def each(
    send: Callable[[list[Item]], Awaitable[Sequence[Result | HoldfastError]]], items: list[Item]
) -> list[Result | HoldfastError]:
    """A result or an error for each item: an invalid one does not fail the others.

    After an error, parts of the batch are sent again. So `send` must have written nothing when it raises, or be
    idempotent.
    """
    try:
        return list(await send(items))
    except HoldfastError as error:
        if len(items) == 1 or (isinstance(error, StoreError) and not isinstance(error, RowRefused | Locked)):
            return [error] * len(items)
        if isinstance(error, Locked):  # bisecting would wait for the lock each time
            return await _one_by_one(send, items)
        middle = len(items) // 2
        return [*await each(send, items[:middle]), *await each(send, items[middle:])]


async def _one_by_one(
    send: Callable[[list[Item]], Awaitable[Sequence[Result | HoldfastError]]], items: list[Item]
) -> list[Result | HoldfastError]:
    room = asyncio.Semaphore(AT_ONCE_MAX)

    async def send_one(item: Item) -> Result | HoldfastError:
        async with room:
            [answer] = await each(send, [item])
            return answer

    return await asyncio.gather(*(send_one(item) for item in items))


class SplitBatcher(Generic[Item, Result]):
    """Items of different kinds in separate batches: those that may have to wait never delay the others."""

    def __init__(self, kind_of: Callable[[Item], Hashable], make: Callable[[], Batcher[Item, Result]]) -> None:
        self._kind_of, self._make = kind_of, make
        self._batchers: dict[Hashable, Batcher[Item, Result]] = {}

    def put(self, item: Item) -> Awaitable[Result]:
        kind = self._kind_of(item)
        if kind not in self._batchers:
            self._batchers[kind] = self._make()
        return self._batchers[kind].put(item)


def _settle(future: asyncio.Future[Result], answer: Result | Exception) -> None:
    if future.done():  # the caller was cancelled
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
