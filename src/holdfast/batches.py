"""Group commit for callers in one process: what arrives while a batch is under way goes into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from holdfast.clock import turn
from holdfast.errors import HoldfastError, StoreError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batches(Generic[Item, Answer]):
    """A lone caller never waits for company, and a crowd of callers shares the cost of a commit.

    `turns` of the event loop before each batch let in those who came at the same moment: a server has many who do.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Answer | HoldfastError]]],
        *,
        most: int = 500,
        turns: int = 0,
    ) -> None:
        self._send = send
        self._most = most
        self._turns = turns
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._lone = False

    async def put(self, item: Item) -> Answer:
        if self._sending is None and not self._lone:
            return await (self._send_alone(item) if not self._turns else self._send_together(item))
        return await self._queue(item)

    def _queue(self, item: Item) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        return future

    async def _send_together(self, item: Item) -> Answer:
        """The first of a crowd does not go ahead of it."""
        self._lone = True
        try:
            await turn()
        finally:
            self._lone = False
            if self._waiting:
                self._sending = asyncio.create_task(self._send_all())
        return await (self._send_alone(item) if self._sending is None else self._queue(item))

    async def _send_alone(self, item: Item) -> Answer:
        """In the caller's own task: nobody else depends on it, and a task more would cost as much as the rest."""
        self._lone = True
        try:
            (answer,) = await self._send([item])
        finally:
            self._lone = False
            self._waiting = [(item, future) for item, future in self._waiting if not future.done()]
            if self._waiting:
                self._sending = asyncio.create_task(self._send_all())
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def _send_all(self) -> None:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._send_batch(batch)
                for _ in range(self._turns):
                    await turn()
        finally:
            self._sending = None
            for _, future in batch + self._waiting:  # all answered, unless this event loop ends
                future.cancel()

    async def _send_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = await each(self._send, [item for item, _ in batch])
        except Exception as error:  # our own mistake: whoever asked hears of it, whoever asks next is not held up
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            _settle(future, answer)


async def each(
    send: Callable[[list[Item]], Awaitable[Sequence[Answer | HoldfastError]]], items: list[Item]
) -> list[Answer | HoldfastError]:
    """An answer or a refusal for each: one that is wrong does not take the others with it."""
    try:
        return list(await send(items))
    except StoreError as error:
        return [error] * len(items)
    except HoldfastError as error:
        if len(items) == 1:
            return [error]
        middle = len(items) // 2
        return [*await each(send, items[:middle]), *await each(send, items[middle:])]


def _settle(future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if future.done():  # whoever asked was cancelled meanwhile
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
